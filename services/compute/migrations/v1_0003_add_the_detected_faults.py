"""Add the detected faults."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0003"
down_revision = "v1_0002"


def upgrade() -> None:
    op.create_table(
        "faults",
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("component", sa.String(length=40), nullable=False),
        sa.Column("code", sa.String(length=40), nullable=False),
        sa.Column("level", sa.String(length=20), nullable=False),
        sa.Column("action", sa.String(length=12), nullable=False),
        sa.Column("since", sa.String(length=40), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("raised_by", sa.String(length=20), nullable=True),
        sa.Column("instance", sa.String(length=127), nullable=True),
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
    with op.batch_alter_table("faults") as batch_op:
        batch_op.create_index("ix_faults_node", ["node"])
