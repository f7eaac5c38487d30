"""Write the next migration of a service from the difference between its tables and what its revisions lead to.

    python -m tests.upkeep.revision resource "add quotas"

`tests/golden/tables` has the tables that each service had at the first revision, as SQLite shows them. They are made
anew only with a new line of revisions, before a release.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
import tempfile
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from services.chassis.database import DatabaseEngine, Migrations

FIRST = Path(__file__).parents[1] / "golden" / "tables"

TEMPLATE = '''"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
'''


def upgraded(service: str, file: Path) -> DatabaseEngine:
    """A database with the first tables of a service, brought up to date by its revisions."""
    with sqlite3.connect(file) as first:
        first.executescript((FIRST / f"{service}.sql").read_text())
        first.execute("INSERT INTO alembic_version VALUES ('v1_0001')")
    database = DatabaseEngine(f"sqlite:///{file}")
    database.migrate(migrations_of(service))
    return database


def migrations_of(service: str) -> Migrations:
    found: Migrations = importlib.import_module(f"services.{service}.main").MIGRATIONS
    return found


def main(service: str, message: str) -> None:
    migrations = migrations_of(service)
    common, own = migrations.folders
    own.mkdir(exist_ok=True)
    template = common.parent / "script.py.mako"
    template.write_text(TEMPLATE)
    number = len(migrations.revisions()[0]) + 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = create_engine(upgraded(service, Path(folder) / "old.db").url)
            config = migrations.config(engine)
            revision = f"v1_{number:04d}"
            command.revision(config, message, autogenerate=True, rev_id=revision, version_path=str(own), head="head")
    finally:
        template.unlink()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
