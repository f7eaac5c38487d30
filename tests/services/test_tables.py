"""A new database has the tables as declared, an old one gets them by revisions, and two who start at once do no harm."""

from __future__ import annotations

import shutil
import threading

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.chassis.database import DatabaseEngine
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.upkeep import revision

SERVICES = ("resource", "link", "compute", "infer")


def difference(database: DatabaseEngine, tables: sa.MetaData) -> list[object]:
    with database.engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection), tables)


@pytest.mark.parametrize("service", SERVICES)
def test_a_new_database_and_an_old_one_have_the_tables_as_declared(tmp_path, service):
    migrations = revision.migrations_of(service)
    new = DatabaseEngine(f"sqlite:///{tmp_path / 'new.db'}")
    new.migrate(migrations)
    new.migrate(migrations)
    old = revision.upgraded(service, tmp_path / "old.db")
    assert difference(new, migrations.tables) == []
    assert difference(old, migrations.tables) == [], "the tables have changed: tests/upkeep/revision.py writes how"


def test_a_revision_that_follows_is_taken_by_an_old_database_and_not_by_a_new_one(tmp_path, monkeypatch):
    migrations = revision.migrations_of("infer")
    present, head = migrations.revisions()
    later = f"v1_{len(present) + 1:04d}"
    folders = [migrations.folders[0], tmp_path / "migrations"]
    shutil.copytree(migrations.folders[1], folders[1])
    old = revision.upgraded("infer", tmp_path / "old.db")
    with monkeypatch.context() as changed:
        changed.setattr(type(migrations), "folders", property(lambda self: folders))
        (folders[1] / f"{later}.py").write_text(
            f"from alembic import op\nimport sqlalchemy as sa\nrevision = '{later}'\ndown_revision = '{head}'\n"
            "def upgrade():\n    op.create_table('later', sa.Column('name', sa.String(9), primary_key=True))\n"
        )
        assert migrations.revisions() == (present | {later}, later)
        old.migrate(migrations)
        new = DatabaseEngine(f"sqlite:///{tmp_path / 'new.db'}")
        new.migrate(migrations)
    assert sa.inspect(old.engine).has_table("later")
    assert not sa.inspect(new.engine).has_table("later"), "a new database has what is declared, and nothing else"


def start_at_once(url: str, service: str) -> list[DatabaseEngine]:
    """Four processes' worth of databases, migrated by as many threads; what one raises is raised here."""
    databases, failed = [DatabaseEngine(url) for _ in range(4)], []

    def start(database: DatabaseEngine) -> None:
        try:
            database.migrate(revision.migrations_of(service))
        except BaseException as wrong:
            failed.append(wrong)

    threads = [threading.Thread(target=start, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return databases


@pytest.mark.parametrize("service", SERVICES)
def test_four_that_start_at_once_make_the_tables_once(tmp_path, service):
    for database in start_at_once(f"sqlite:///{tmp_path / 'new.db'}", service):
        assert difference(database, revision.migrations_of(service).tables) == []


@needs_postgres
@pytest.mark.parametrize("service", SERVICES)
def test_four_that_start_at_once_on_postgresql_make_the_tables_once(service):
    with a_database() as url:
        databases = start_at_once(url, service)
        assert difference(databases[0], revision.migrations_of(service).tables) == []
        for database in databases:
            database.close()
