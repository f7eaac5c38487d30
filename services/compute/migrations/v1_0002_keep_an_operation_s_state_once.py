"""An operation's state is kept once: an overtaken one was Running by one column and Cancelled by the other."""

from __future__ import annotations

from alembic import op

revision = "v1_0002"
down_revision = "v1_0001"


def upgrade() -> None:
    op.execute("UPDATE operations SET state = status")
    with op.batch_alter_table("operations") as batch_op:
        batch_op.drop_index("ix_operations_status")
        batch_op.create_index("ix_operations_state", ["state"])
        batch_op.drop_column("status")
