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
        "agents",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "communicators",
        sa.Column("slice", sa.String(length=253), nullable=False),
        sa.Column("pattern", sa.String(length=16), nullable=False),
        sa.Column("routing", sa.String(length=16), nullable=False),
        sa.Column("ranks", sa.JSON(), nullable=True),
        sa.Column("offered_gbps", sa.Float(), nullable=True),
        sa.Column("shift", sa.Integer(), nullable=True),
        sa.Column("holders", sa.Integer(), nullable=True),
        sa.Column("seed", sa.Integer(), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_communicators_slice", "communicators", ["slice"])
    op.create_table(
        "drains",
        sa.Column("elements", sa.JSON(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(length=300), nullable=False),
        sa.Column("even_if_floors_break", sa.Boolean(), nullable=False),
        sa.Column("waiting_for", sa.Integer(), nullable=False),
        sa.Column("message", sa.String(length=300), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "events",
        sa.Column("about", sa.String(length=253), nullable=False),
        sa.Column("type", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.String(length=60), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_events_about", "events", ["about"])
    op.create_index("ix_events_at", "events", ["at"])
    op.create_table(
        "fences",
        sa.Column("slice", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("isolation", sa.String(length=16), nullable=False),
        sa.Column("isolation_key", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("slice", "node"),
    )
    op.create_table(
        "links",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("port", sa.String(length=40), nullable=False),
        sa.Column("gbps", sa.Float(), nullable=False),
        sa.Column("built", sa.JSON(), nullable=False),
        sa.Column("reported_gbps", sa.Float(), nullable=True),
        sa.Column("probed_gbps", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(length=40), server_default="", nullable=False),
        sa.Column("accused", sa.String(length=80), nullable=True),
        sa.Column("penalty", sa.Float(), server_default="0", nullable=False),
        sa.Column("penalty_at", sa.Float(), server_default="0", nullable=False),
        sa.Column("damped_until", sa.Float(), nullable=True),
        *resource_columns(),
    )
    op.create_index("ix_links_node", "links", ["node"])
    op.create_table(
        "peerings",
        sa.Column("slices", sa.JSON(), nullable=False),
        sa.Column("plane", sa.String(length=8), nullable=False),
        sa.Column("isolation", sa.String(length=16), nullable=False),
        sa.Column("isolation_key", sa.Integer(), nullable=False),
        sa.Column("accepted_by", sa.JSON(), nullable=False),
        sa.Column("security_rules", sa.JSON(), nullable=False),
        sa.Column("message", sa.String(length=300), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "programs",
        sa.Column("slice", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("action", sa.String(length=8), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("acknowledged", sa.Integer(), nullable=False),
        sa.Column("message", sa.String(length=300), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_programs_node", "programs", ["node"])
    op.create_index("ix_programs_slice", "programs", ["slice"])
    op.create_table(
        "slice_names",
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "slices",
        sa.Column("allocation", sa.String(length=253), nullable=False),
        sa.Column("instance", sa.String(length=253), nullable=False),
        sa.Column("plane", sa.String(length=8), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("qos_class", sa.String(length=16), nullable=False),
        sa.Column("floor_gbps", sa.Float(), nullable=False),
        sa.Column("ceiling_gbps", sa.Float(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("latency_bound_us", sa.Float(), nullable=True),
        sa.Column("protection", sa.String(length=16), nullable=False),
        sa.Column("isolation", sa.String(length=16), nullable=False),
        sa.Column("isolation_key", sa.Integer(), nullable=False),
        sa.Column("admitted_order", sa.BigInteger(), nullable=False),
        sa.Column("kept", sa.Float(), nullable=False),
        sa.Column("unprotected", sa.String(length=300), nullable=False),
        sa.Column("security_rules", sa.JSON(), nullable=False),
        sa.Column("program_generation", sa.Integer(), nullable=False),
        sa.Column("programmed", sa.Integer(), nullable=False),
        sa.Column("ports_seen", sa.JSON(), nullable=False),
        sa.Column("fabric_view", sa.JSON(), nullable=False),
        sa.Column("view_generation", sa.Integer(), nullable=False),
        sa.Column("withdrawing_since", sa.Float(), nullable=True),
        *resource_columns(),
        sa.UniqueConstraint("isolation", "isolation_key"),
    )
    op.create_index("ix_slices_allocation", "slices", ["allocation"])
    op.create_index("ix_slices_instance", "slices", ["instance"])
    op.create_table(
        "wirings",
        sa.Column("supernode", sa.String(length=63), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("supernode"),
    )
