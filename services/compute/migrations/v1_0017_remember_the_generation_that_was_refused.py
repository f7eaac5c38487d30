"""remember the generation that was refused for good."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v1_0017"
down_revision = "v1_0016"


def upgrade() -> None:
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.add_column(sa.Column("refused_generation", sa.Integer(), nullable=True))
