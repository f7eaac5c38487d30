"""know since when a deployment is in its state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0005"
down_revision = "v1_0004"


def upgrade() -> None:
    with op.batch_alter_table("deployments", schema=None) as batch_op:
        batch_op.add_column(sa.Column("state_since", sa.Float(), nullable=True))
