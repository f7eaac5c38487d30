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
        "agent_leases",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("heard_at", sa.Float(), nullable=False),
        sa.Column("lease_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "allocations",
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("spares", sa.Integer(), nullable=False),
        sa.Column("npus", sa.Float(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("moving_to", sa.JSON(), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("topology_version", sa.String(length=200), nullable=False),
        sa.Column("bound", sa.Boolean(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("preempts", sa.JSON(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "assignments",
        sa.Column("desired_role", sa.String(length=10), nullable=False),
        sa.Column("allocation", sa.String(length=127), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("parts", sa.JSON(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "defragmentations",
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("level", sa.String(length=12), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("moves", sa.JSON(), nullable=False),
        sa.Column("room", sa.JSON(), nullable=False),
        sa.Column("block_before", sa.Integer(), nullable=False),
        sa.Column("block_after", sa.Integer(), nullable=False),
        sa.Column("npus", sa.Float(), nullable=False),
        sa.Column("exact", sa.Boolean(), nullable=False),
        sa.Column("cancelling", sa.Boolean(), nullable=False),
        sa.Column("topology_version", sa.String(length=200), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "domains",
        sa.Column("level", sa.String(length=10), nullable=False),
        sa.Column("supernode", sa.String(length=63), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("by", sa.String(length=63), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_domains_supernode", "domains", ["supernode"])
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
    op.create_table(
        "inventories",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_table(
        "nodes",
        sa.Column("supernode", sa.String(length=16), nullable=False),
        sa.Column("npus", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=127), nullable=True),
        sa.Column("role", sa.String(length=10), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("shared_by", sa.Integer(), nullable=False),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("domain_closed", sa.Boolean(), nullable=False),
        sa.Column("reserved_for_plan", sa.String(length=253), nullable=True),
        sa.Column("power", sa.String(length=10), nullable=False),
        sa.Column("health", sa.String(length=12), nullable=False),
        sa.Column("agent", sa.String(length=10), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=True),
        sa.Column("stage", sa.String(length=40), nullable=True),
        sa.Column("observed_generation", sa.BigInteger(), nullable=False),
        sa.Column("desired_role", sa.String(length=10), nullable=False),
        sa.Column("wanted_generation", sa.BigInteger(), nullable=False),
        sa.Column("assignment_generation", sa.BigInteger(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("reported_partitions", sa.JSON(), nullable=False),
        *resource_columns(),
    )
    op.create_index("ix_nodes_holder", "nodes", ["holder"])
    op.create_table(
        "observed_ports",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("supernode", sa.String(length=63), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("moving", sa.Boolean(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_index("ix_observed_ports_moving", "observed_ports", ["moving"])
    op.create_index("ix_observed_ports_supernode", "observed_ports", ["supernode"])
    op.create_table(
        "parts",
        sa.Column("allocation", sa.String(length=127), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("dies", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("releasing", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("allocation", "node"),
    )
    op.create_index("ix_parts_node", "parts", ["node"])
    op.create_table(
        "quotas",
        sa.Column("limits", sa.JSON(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "reservations",
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("place", sa.JSON(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "supernodes",
        sa.Column("topology_version", sa.String(length=120), nullable=False),
        sa.Column("cabinets", sa.Integer(), nullable=False),
        sa.Column("npus_per_node", sa.Integer(), nullable=False),
        sa.Column("cpus_per_node", sa.Integer(), nullable=False),
        *resource_columns(),
    )
    op.create_table(
        "topology_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "topology_specs",
        sa.Column("fingerprint", sa.String(length=12), nullable=False),
        sa.Column("numbers", sa.Text(), nullable=False),
        sa.Column("drawn", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint"),
    )
    op.create_table(
        "topology_versions",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("by", sa.String(length=63), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("topology", sa.JSON(), nullable=False),
        *resource_columns(),
        sa.UniqueConstraint("number"),
    )
