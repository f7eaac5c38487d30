"""Add the NPUs that instances have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0004"
down_revision = "v1_0003"


def upgrade() -> None:
    with op.batch_alter_table("instances") as batch_op:
        batch_op.add_column(sa.Column("npus", sa.Integer(), nullable=False, server_default="0"))
