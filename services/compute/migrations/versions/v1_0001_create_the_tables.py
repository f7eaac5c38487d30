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
        "events",
        sa.Column("instance", sa.String(length=127), nullable=False),
        sa.Column("type", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.String(length=60), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_events_at", "events", ["at"])
    op.create_index("ix_events_instance", "events", ["instance"])
    op.create_table(
        "instances",
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("applied", sa.JSON(), nullable=True),
        sa.Column("observed_generation", sa.Integer(), nullable=False),
        sa.Column("operation", sa.String(length=253), nullable=True),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("slices", sa.JSON(), nullable=False),
        sa.Column("ready_nodes", sa.Integer(), nullable=False),
        sa.Column("repairs", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.Float(), nullable=False),
        sa.Column("leaving", sa.JSON(), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        *resource_columns(),
    )
    op.create_table(
        "operations",
        sa.Column("verb", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=127), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("spec_generation", sa.Integer(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        *resource_columns(),
    )
    op.create_index("ix_operations_status", "operations", ["status"])
    op.create_index("ix_operations_target", "operations", ["target"])
