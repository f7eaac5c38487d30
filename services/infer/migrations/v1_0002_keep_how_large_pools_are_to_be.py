"""keep how large pools are to be."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0002"
down_revision = "v1_0001"


def upgrade() -> None:

    with op.batch_alter_table("deployments", schema=None) as batch_op:
        batch_op.add_column(sa.Column("scale", sa.JSON(), nullable=True))
