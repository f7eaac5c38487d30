"""Know when a lease ends: an instance whose nodes were taken back after that is not made again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.add_column(sa.Column("expires_at", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("instances") as table:
        table.drop_column("expires_at")
