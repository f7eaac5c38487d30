"""Migration of the database to the present tables, as in every service (`services/chassis/database.py`).

A SQLite file that is new or up to date is handled without SQLAlchemy, which takes longer to load than all the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from matrixcontainer.kubeapi.storage.objects import StorageError
from matrixcontainer.kubeapi.storage.sqlite import TABLES, storage_error
from services.chassis.database_url import without_credentials
from services.kube.bootstrap_process import BootstrapError

REVISION = "v1_0001"
"""The newest revision in `services/chassis/migrations` and, once there are any, `services/kube/migrations`."""
VERSION_TABLE = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)


@contextmanager
def bootstrap_errors(url: str) -> Iterator[None]:
    """Turn any failure of the database into a Refused of one line that names the database."""
    try:
        yield
    except StorageError as failure:
        raise BootstrapError(str(failure)) from failure
    except sqlite3.Error as failure:
        raise BootstrapError(str(storage_error(url.removeprefix("sqlite:///"), failure))) from failure
    except OSError as failure:
        raise BootstrapError(f"{failure.filename or url}: {failure.strerror or failure}") from failure
    except Exception as failure:
        if not type(failure).__module__.startswith(("psycopg", "sqlalchemy")):
            raise
        output = str(getattr(failure, "orig", None) or failure).strip().replace("\n", " ")
        raise BootstrapError(f"{without_credentials(url)}: {output}") from failure


def migrate(url: str) -> bool:
    """Migrate the database. Return whether SQLAlchemy was needed."""
    if url.startswith("sqlite:///") and _ensure_sqlite_schema(url.removeprefix("sqlite:///")):
        return False
    from matrixcontainer.kubeapi.storage.tables import metadata
    from services.chassis.database import DatabaseEngine, Migrations, UnknownSchema

    database = DatabaseEngine(url)
    try:
        database.migrate(Migrations("kube", metadata))
    except UnknownSchema as refused:
        raise BootstrapError(refused.message) from refused
    finally:
        database.close()
    return True


def _ensure_sqlite_schema(file: str) -> bool:
    """Whether the file has the present tables, which are created in an empty one."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            connection.execute("BEGIN IMMEDIATE")
            for statement in (*TABLES, VERSION_TABLE):
                connection.execute(statement)
            connection.execute("INSERT INTO alembic_version VALUES (?)", (REVISION,))
            connection.execute("COMMIT")
            return True
        if "alembic_version" not in tables:
            return False
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISION,)]
