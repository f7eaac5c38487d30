"""What every Alembic `env.py` does: run on the engine it is handed.

Replicas may start at once: on PostgreSQL one of them migrates, and the others, when it has, find nothing to do.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import MetaData

from services.chassis.database import lock


def run(tables: MetaData) -> None:
    """Migrate the database behind `config.attributes["engine"]` in one transaction."""
    with context.config.attributes["engine"].connect() as connection:
        context.configure(connection=connection, target_metadata=tables, render_as_batch=True)
        with context.begin_transaction():
            if connection.dialect.name == "postgresql":
                lock(connection)
            context.run_migrations()
