"""remember what nodes were found to consist of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "inventories",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )


def downgrade() -> None:
    op.drop_table("inventories")
