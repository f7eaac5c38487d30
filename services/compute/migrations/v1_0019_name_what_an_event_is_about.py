"""name the subject of an event as the other services do."""

from __future__ import annotations

from alembic import op

revision = "v1_0019"
down_revision = "v1_0018"


def upgrade() -> None:
    op.drop_index("ix_events_instance", "events")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.alter_column("instance", new_column_name="about")
    op.create_index("ix_events_about", "events", ["about"])
