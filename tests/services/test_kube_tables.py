"""The embedded API's tables: what the migrations make is what the store makes in a fresh file, and what it uses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from matrixcontainer.kubeapi.storage.tables import metadata
from services.kube.database import MIGRATIONS, migrate, newest_revision
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres


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


def upgraded(url: str, to: str = "head") -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = create_engine(url)
    command.upgrade(config, to)
    config.attributes["engine"].dispose()


def test_a_fresh_file_is_as_the_migrations_leave_it(tmp_path: Path) -> None:
    fresh, stepwise = tmp_path / "fresh.db", tmp_path / "stepwise.db"
    assert migrate(f"sqlite:///{fresh}") is False
    upgraded(f"sqlite:///{stepwise}")
    assert columns(fresh) == columns(stepwise)
    with sqlite3.connect(fresh) as current:
        assert current.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest_revision(),)]
    engine = create_engine(f"sqlite:///{stepwise}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_an_older_file_is_migrated_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgraded(url, "0001")
    assert migrate(url) is True
    assert migrate(url) is False


@needs_postgres
def test_postgresql_gets_the_tables_that_are_declared() -> None:
    with a_database() as url:
        assert migrate(url) is True
        engine = create_engine(url)
        with engine.begin() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        engine.dispose()
