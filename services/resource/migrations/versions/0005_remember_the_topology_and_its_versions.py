"""remember the topology and its versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def _resource_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("conditions", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
    ]


def upgrade() -> None:
    head = op.create_table(
        "topology_head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    # Here already, so that two replicas that start at once find one row to take turns on.
    op.bulk_insert(head, [{"id": 1, "number": 0, "name": ""}])
    op.create_table(
        "topology_specs",
        sa.Column("fingerprint", sa.String(length=12), nullable=False),
        sa.Column("numbers", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint"),
    )
    op.create_table(
        "topology_versions",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("by", sa.String(length=63), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("topology", sa.JSON(), nullable=False),
        *_resource_columns(),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("number"),
    )
    op.create_table(
        "domains",
        sa.Column("level", sa.String(length=10), nullable=False),
        sa.Column("supernode", sa.String(length=63), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("by", sa.String(length=63), nullable=False),
        *_resource_columns(),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index("ix_domains_supernode", "domains", ["supernode"])
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


def downgrade() -> None:
    for table in ("observed_ports", "domains", "topology_versions", "topology_specs", "topology_head"):
        op.drop_table(table)
