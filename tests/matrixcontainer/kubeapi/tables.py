"""The store's tables without migrations, for tests."""

from sqlalchemy import create_engine

from matrixcontainer.kubeapi.storage.backend import Database
from matrixcontainer.kubeapi.storage.sqlite import TABLES, Sqlite
from matrixcontainer.kubeapi.storage.tables import metadata


def create_tables(database: Database) -> None:
    """Make the tables that are missing."""
    if isinstance(database, Sqlite):
        for statement in TABLES:
            database.connection.execute(statement)
        return
    engine = create_engine(database._url.replace("postgresql://", "postgresql+psycopg://", 1))
    metadata.create_all(engine)
    engine.dispose()
