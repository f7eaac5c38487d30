"""Remember the change that was cancelled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0005"
down_revision = "v1_0004"


def upgrade() -> None:
    with op.batch_alter_table("instances") as batch_op:
        batch_op.add_column(sa.Column("cancelled", sa.JSON(), nullable=True))
