"""Migrates the database behind `config.attributes["engine"]` in one transaction.

Replicas may start at once: on PostgreSQL one of them migrates, and the others, when it has, find nothing to do.
"""

from alembic import context

from matrixcommon.persistence.postgres_sessions import LIFT_TIMEOUTS
from services.chassis.database import lock_migrations

with context.config.attributes["engine"].connect() as connection:
    tables = context.config.attributes["tables"]
    context.configure(connection=connection, target_metadata=tables, render_as_batch=True)
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(LIFT_TIMEOUTS)
            lock_migrations(connection)
        context.run_migrations()
