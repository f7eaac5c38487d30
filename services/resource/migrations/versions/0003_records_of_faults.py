"""remember how often and how long faults were seen."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "fault_records",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("component", sa.String(length=40), nullable=False),
        sa.Column("code", sa.String(length=40), nullable=False),
        sa.Column("times", sa.JSON(), nullable=False),
        sa.Column("since", sa.Float(), nullable=True),
        sa.Column("gone_at", sa.Float(), nullable=True),
        sa.Column("separated_at", sa.Float(), nullable=True),
        sa.Column("prolonged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("node", "component", "code"),
    )


def downgrade() -> None:
    op.drop_table("fault_records")
