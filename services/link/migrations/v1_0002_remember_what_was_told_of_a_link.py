"""Remember which state of a link's port the newest event on it says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0002"
down_revision = "v1_0001"


def upgrade() -> None:
    with op.batch_alter_table("links") as batch_op:
        batch_op.add_column(sa.Column("announced", sa.String(length=10), server_default="Up", nullable=False))
