"""say what is wished of parts of nodes, and what was seen of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("assignments", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parts", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parts_seen", sa.JSON(), nullable=False, server_default="{}"))


def downgrade() -> None:
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_column("parts_seen")
    with op.batch_alter_table("assignments", schema=None) as batch_op:
        batch_op.drop_column("parts")
