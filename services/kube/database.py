"""Brings the database to the present tables. Alembic is only loaded when there is something to migrate: a fresh SQLite
file gets the present tables at once, as the migrations would leave it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from matrixcontainer.kubeapi.sqlite import TABLES

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


def newest_revision() -> str:
    return max(path.stem.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def migrate(url: str) -> bool:
    """Returns whether migrations had to run."""
    if url.startswith("sqlite:///") and _is_present(url.removeprefix("sqlite:///")):
        return False
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, inspect, text

    engine = create_engine(url)
    with engine.connect() as connection:
        if inspect(connection).has_table("alembic_version"):
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            if found == newest_revision():
                return False
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")
    engine.dispose()
    return True


def _is_present(file: str) -> bool:
    """Whether the file has the present tables; an empty one is given them."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        held = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not held:
            connection.execute("BEGIN IMMEDIATE")
            for statement in (*TABLES, VERSION_TABLE):
                connection.execute(statement)
            connection.execute("INSERT INTO alembic_version VALUES (?)", (newest_revision(),))
            connection.execute("COMMIT")
            return True
        if "alembic_version" not in held:
            return False
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest_revision(),)]
