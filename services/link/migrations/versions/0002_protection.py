"""say which failure a slice's floor is to survive, and why it would not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.add_column(sa.Column("protection", sa.String(length=16), nullable=False, server_default="none"))
        batch_op.add_column(sa.Column("unprotected", sa.String(length=300), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.drop_column("unprotected")
        batch_op.drop_column("protection")
