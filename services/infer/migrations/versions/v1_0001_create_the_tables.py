"""create the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from services.chassis.migration_columns import create_journal, resource_columns

revision = "v1_0001"
down_revision = None


def upgrade() -> None:
    create_journal()
    op.create_table(
        "deployments",
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("endpoint", sa.String(length=200), nullable=False),
        sa.Column("fabric_generation", sa.BigInteger(), nullable=False),
        sa.Column("pools", sa.JSON(), nullable=False),
        sa.Column("roles", sa.JSON(), nullable=False),
        sa.Column("load", sa.JSON(), nullable=True),
        sa.Column("drain", sa.JSON(), nullable=True),
        *resource_columns(),
    )
    op.create_table(
        "usage",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("deployment", sa.String(length=127), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project", "key", "deployment"),
    )
