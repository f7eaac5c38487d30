"""Say who cordoned a node; before, there was one cordon, of whoever asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0002"
down_revision = "v1_0001"


def upgrade() -> None:
    with op.batch_alter_table("nodes") as batch_op:
        batch_op.add_column(sa.Column("cordoned_by", sa.JSON(), server_default="[]", nullable=False))
    op.execute(sa.text("UPDATE nodes SET cordoned_by = '[\"admin\"]' WHERE cordoned"))
    with op.batch_alter_table("nodes") as batch_op:
        batch_op.drop_column("cordoned")
