"""keep the pools that a policy decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0016"
down_revision = "v1_0015"


def upgrade() -> None:
    with op.batch_alter_table("scaling_policies", schema=None) as batch_op:
        batch_op.add_column(sa.Column("desired_pools", sa.JSON(), nullable=True))
