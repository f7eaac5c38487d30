"""What the tables of every service's first revision have in common, as it was then.

A revision that has been released is never changed: what a later one changes, it changes in words of its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


def resource_columns() -> tuple[sa.schema.SchemaItem, ...]:
    """What each resource has: its key, versions and state."""
    return (
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("conditions", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def create_journal() -> None:
    """The journal of changes and its head."""
    op.create_table(
        "changes",
        sa.Column("rv", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("type", sa.String(length=10), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rv"),
    )
    op.create_index("ix_changes_kind", "changes", ["kind"])
    op.create_table(
        "journal_head",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("rv", sa.BigInteger(), nullable=False),
        sa.Column("floor", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
