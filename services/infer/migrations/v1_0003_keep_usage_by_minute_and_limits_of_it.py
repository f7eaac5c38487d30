"""keep usage by minute and limits of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0003"
down_revision = "v1_0002"


def upgrade() -> None:
    op.create_table(
        "usage_buckets",
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("deployment", sa.String(length=127), nullable=False),
        sa.Column("model", sa.String(length=127), nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("width_s", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "key", "deployment", "model", "start", "width_s"),
    )
    op.create_table(
        "usage_limits",
        sa.Column("request", sa.JSON(), nullable=False),
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
    # What was used before stays, as a day's at the beginning of time; every deployment served DeepSeek-R1.
    op.execute(
        """
        INSERT INTO usage_buckets (project, "key", deployment, model, start, width_s,
                                   requests, prompt_tokens, cached_tokens, completion_tokens)
        SELECT project, "key", deployment, 'deepseek-r1', 0, 86400,
               requests, prompt_tokens, cached_tokens, completion_tokens FROM usage
        """
    )
    op.drop_table("usage")
