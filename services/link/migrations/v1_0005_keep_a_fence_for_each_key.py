"""Keep a fence for each key that a node may still use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0005"
down_revision = "v1_0004"

COLUMNS = ("slice", "node", "isolation", "isolation_key", "generation")


def upgrade() -> None:
    op.create_table(
        "fences_by_key",
        sa.Column("slice", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("isolation", sa.String(length=16), nullable=False),
        sa.Column("isolation_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("slice", "node", "isolation", "isolation_key"),
    )
    names = ", ".join(COLUMNS)
    op.execute(f"INSERT INTO fences_by_key ({names}) SELECT {names} FROM fences")
    op.drop_table("fences")
    op.rename_table("fences_by_key", "fences")
