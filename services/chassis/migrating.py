"""What every service's Alembic `env.py` does: run on the engine it is handed, or on a URL given by hand.

Replicas may start at once: on PostgreSQL one of them migrates, and the others, when it has, find nothing to do.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import MetaData, create_engine, text

MIGRATING = 0x636D333834
"""The number of the advisory lock, any that nobody else uses: "cm384" in ASCII."""


def run(metadata: MetaData) -> None:
    """Migrate the database behind `config.attributes["engine"]`, else `sqlalchemy.url`, in one transaction."""
    engine = context.config.attributes.get("engine")
    if engine is None:
        engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "sqlite://")
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
        with context.begin_transaction():
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": MIGRATING})
            context.run_migrations()
