"""The migrations make exactly the tables the code uses."""

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from matrixresource.store.tables import Base
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS


def test_migrations_make_the_tables(tmp_path):
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'x.db'}")
    database.migrate(MIGRATIONS)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
