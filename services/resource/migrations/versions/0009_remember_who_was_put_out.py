"""Remember who was put out: an allocation says whose place it took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    with op.batch_alter_table("allocations") as table:
        table.add_column(sa.Column("preempts", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    with op.batch_alter_table("allocations") as table:
        table.drop_column("preempts")
