"""keep an allocation's whole wish; know parts of nodes and quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "parts",
        sa.Column("allocation", sa.String(length=63), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("dies", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_gib", sa.Integer(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("going", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("allocation", "node"),
    )
    op.create_index("ix_parts_node", "parts", ["node"])
    op.create_table(
        "quotas",
        sa.Column("limits", sa.JSON(), nullable=False),
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
    op.create_table(
        "reservations",
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("place", sa.JSON(), nullable=False),
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
    with op.batch_alter_table("nodes") as table:
        table.add_column(sa.Column("shared_by", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("domain_closed", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.add_column(sa.Column("assignment_generation", sa.BigInteger(), nullable=False, server_default="1"))
    op.execute("UPDATE nodes SET assignment_generation = wanted_generation")
    with op.batch_alter_table("allocations") as table:
        table.add_column(sa.Column("npus", sa.Float(), nullable=False, server_default="0"))
        table.add_column(sa.Column("request", sa.JSON(), nullable=False, server_default="{}"))
        table.add_column(sa.Column("moving_to", sa.JSON(), nullable=True))
        table.add_column(sa.Column("expires_at", sa.Float(), nullable=True))
    _write_wishes()
    with op.batch_alter_table("allocations") as table:
        table.drop_column("placement")
        table.alter_column("topology_version", type_=sa.String(length=200), existing_type=sa.String(length=120))


def _write_wishes() -> None:
    """Until now a wish was whole nodes, spares and a placement."""
    columns = ("name", "project", "nodes", "spares")
    table = sa.table(
        "allocations",
        *map(sa.column, columns),
        sa.column("npus"),
        sa.column("placement", sa.JSON),
        sa.column("request", sa.JSON),
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(table)).mappings().all():
        wish = {
            "project": row["project"],
            "labels": {},
            "nodes": row["nodes"],
            "cpus": 0,
            "memoryGib": 0,
            "spares": row["spares"],
            "placement": {**row["placement"], "blocks": []},
            "priority": 0,
            "preemption": "Never",
            "topologyVersion": "",
            "excludeNodes": [],
        }
        change = table.update().where(table.c.name == row["name"]).values(request=wish, npus=row["nodes"] * 8)
        connection.execute(change)


def downgrade() -> None:
    with op.batch_alter_table("allocations") as table:
        table.add_column(sa.Column("placement", sa.JSON(), nullable=False, server_default="{}"))
        for column in ("npus", "request", "moving_to", "expires_at"):
            table.drop_column(column)
    with op.batch_alter_table("nodes") as table:
        table.drop_column("assignment_generation")
        table.drop_column("shared_by")
        table.drop_column("domain_closed")
    op.drop_table("reservations")
    op.drop_table("quotas")
    op.drop_index("ix_parts_node", "parts")
    op.drop_table("parts")
