"""keep how long new members were waited for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0018"
down_revision = "v1_0017"


def upgrade() -> None:
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.add_column(sa.Column("node_waits", sa.JSON(), nullable=True))
