"""say which failure a slice's floor is to survive, what is drained, and who is peered."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.add_column(sa.Column("protection", sa.String(length=16), nullable=False, server_default="none"))
        batch_op.add_column(sa.Column("unprotected", sa.String(length=300), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("security_rules", sa.JSON(), nullable=False, server_default="[]"))
    op.create_table(
        "peerings",
        sa.Column("slices", sa.JSON(), nullable=False),
        sa.Column("plane", sa.String(length=8), nullable=False),
        sa.Column("isolation", sa.String(length=16), nullable=False),
        sa.Column("isolation_key", sa.Integer(), nullable=False),
        sa.Column("accepted_by", sa.JSON(), nullable=False),
        sa.Column("security_rules", sa.JSON(), nullable=False),
        sa.Column("message", sa.String(length=300), nullable=False),
        *_resource(),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "drains",
        sa.Column("elements", sa.JSON(), nullable=False),
        sa.Column("ports", sa.JSON(), nullable=False),
        sa.Column("reason", sa.String(length=300), nullable=False),
        sa.Column("even_if_floors_break", sa.Boolean(), nullable=False),
        sa.Column("waiting_for", sa.Integer(), nullable=False),
        sa.Column("message", sa.String(length=300), nullable=False),
        *_resource(),
        sa.PrimaryKeyConstraint("name"),
    )


def _resource() -> list[sa.Column[Any]]:
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


def downgrade() -> None:
    op.drop_table("drains")
    op.drop_table("peerings")
    with op.batch_alter_table("slices", schema=None) as batch_op:
        batch_op.drop_column("security_rules")
        batch_op.drop_column("unprotected")
        batch_op.drop_column("protection")
