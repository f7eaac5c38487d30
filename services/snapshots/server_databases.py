"""Copy a database server's tables into a snapshot's SQLite files, and back.

A snapshot thus has the same format whichever database a stack uses: one taken on PostgreSQL can be restored to SQLite
and vice versa. Only the current schema is copied, so this version of the services must be running or have run on the
database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sqlalchemy import Connection, Integer, Table, create_engine, func, inspect, select, text
from sqlalchemy.exc import OperationalError

from matrixcommon.model.errors import InternalError, Unavailable
from services.chassis.database import JSON, VERSION, DatabaseEngine, Migrations, one_line
from services.snapshots.archive import schema_revision

ROWS = 1000
"""Rows read and written per batch."""
SERVICES = ("resource", "link", "compute", "infer", "kube")


def service_url(database: str, service: str) -> str:
    """Return a service's database URL from the template given to `matrixctl up --database`."""
    return database.replace("{service}", service)


def load_migrations(service: str) -> Migrations:
    """Return a service's migrations, with its tables as currently declared."""
    if service == "kube":
        from matrixcontainer.kubeapi.storage.tables import metadata

        return Migrations("kube", metadata)
    found: Migrations = import_module(f"services.{service}.main").MIGRATIONS
    return found


def dump(service: str, url: str, file: Path) -> None:
    """Copy a service's tables into a new SQLite file, as one consistent read. Raises InternalError if the database does
    not have this version's schema."""
    migrations = load_migrations(service)
    _, newest = migrations.revisions()
    source = DatabaseEngine(_driver(url)).engine
    target = create_engine(f"sqlite:///{file}", **JSON)
    try:
        with (
            _translating_errors(service),
            source.connect().execution_options(isolation_level="REPEATABLE READ") as read,
            target.begin() as written,
        ):
            if not inspect(read).has_table(VERSION.name) or read.execute(select(VERSION)).scalar() != newest:
                raise InternalError(f"the {service} database does not have the schema of this version ({newest})")
            migrations.tables.create_all(written)
            VERSION.create(written)
            for table in (*migrations.tables.sorted_tables, VERSION):
                _copy(table, read, written)
    finally:
        source.dispose()
        target.dispose()


def load(database: str, folder: Path) -> None:
    """Replace the contents of the server's databases with those of the SQLite files in the folder, and delete the
    files. A database without a file becomes empty. Each database is replaced in one transaction."""
    for service in SERVICES:
        file, engine = folder / f"{service}.db", DatabaseEngine(_driver(service_url(database, service)))
        migrations = load_migrations(service)
        try:
            if file.exists():
                older = schema_revision(file) != migrations.revisions()[1]
                if older:
                    DatabaseEngine(f"sqlite:///{file}").migrate(migrations)
            with _translating_errors(service):
                engine.migrate(migrations)
            with _translating_errors(service), engine.engine.begin() as written:
                for table in reversed(migrations.tables.sorted_tables):
                    written.execute(table.delete())
                if file.exists():
                    source = create_engine(f"sqlite:///{file}", **JSON)
                    with source.connect() as read:
                        for table in migrations.tables.sorted_tables:
                            _copy(table, read, written)
                            _set_sequences(table, written)
                    source.dispose()
        finally:
            engine.close()
        file.unlink(missing_ok=True)


@contextmanager
def _translating_errors(service: str) -> Iterator[None]:
    """Turn a lost or refused connection to the server into Unavailable."""
    try:
        yield
    except OperationalError as wrong:
        raise Unavailable(f"the {service} database cannot be used: {one_line(wrong)}") from wrong


def _copy(table: Table, read: Connection, written: Connection) -> None:
    rows = read.execution_options(yield_per=ROWS).execute(select(table)).mappings()
    for part in rows.partitions(ROWS):
        written.execute(table.insert(), [dict(row) for row in part])


def _set_sequences(table: Table, written: Connection) -> None:
    """Make the server's sequences continue after the highest number in the table."""
    for column in table.primary_key.columns:
        if isinstance(column.type, Integer) and len(table.primary_key.columns) == 1:
            sequence = written.execute(select(func.pg_get_serial_sequence(table.name, column.name))).scalar()
            if sequence:
                highest = written.execute(select(func.max(column))).scalar()
                written.execute(
                    text("SELECT setval(:sequence, :value, :called)"),
                    {"sequence": sequence, "value": highest or 1, "called": highest is not None},
                )


def _driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)
