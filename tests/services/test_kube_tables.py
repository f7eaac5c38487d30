"""The embedded API's tables: what is declared is what the store makes in a fresh file, and what it uses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from matrixcontainer.kubeapi.storage.tables import metadata
from services.chassis.database import DatabaseEngine, Migrations
from services.kube.bootstrap_process import BootstrapError
from services.kube.database import migrate
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres

MIGRATIONS = Migrations("kube", metadata)


def columns(file: Path) -> dict[str, list[tuple[object, ...]]]:
    """Name, type, nullability and place in the key of every column."""
    with sqlite3.connect(file) as current:
        tables = [name for (name,) in current.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: sorted(
                (row[1], row[2].upper(), row[3], row[5]) for row in current.execute(f"PRAGMA table_info({table})")
            )
            for table in tables
        }


def test_a_fresh_file_has_the_tables_that_are_declared(tmp_path: Path) -> None:
    fresh, declared = tmp_path / "fresh.db", tmp_path / "declared.db"
    assert migrate(f"sqlite:///{fresh}") is False
    database = DatabaseEngine(f"sqlite:///{declared}")
    database.migrate(MIGRATIONS)
    assert columns(fresh) == columns(declared)
    with sqlite3.connect(fresh) as current:
        assert current.execute("SELECT version_num FROM alembic_version").fetchall() == [(MIGRATIONS.revisions()[1],)]
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_file_of_another_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    assert migrate(f"sqlite:///{file}") is False
    with sqlite3.connect(file) as current:
        current.execute("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(BootstrapError, match="begin with an empty state folder"):
        migrate(f"sqlite:///{file}")


@needs_postgres
def test_postgresql_gets_the_tables_that_are_declared() -> None:
    with a_database() as url:
        assert migrate(url) is True
        engine = create_engine(url)
        with engine.begin() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        engine.dispose()
