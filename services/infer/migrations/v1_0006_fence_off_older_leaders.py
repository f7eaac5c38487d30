"""fence off older leaders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0006"
down_revision = "v1_0005"


def upgrade() -> None:
    op.create_table(
        "leaders",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(length=63), server_default="", nullable=False),
        sa.Column("renewals", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
