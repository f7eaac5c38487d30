"""A service's database: the engine, and migration to the newest tables before the first request.

SQLite runs in WAL mode with full sync, so an acknowledged write survives a crash of the process or the machine.
PostgreSQL is the same code behind another URL. A new database gets the present tables at once, as declared; a database
of an earlier version is migrated, revision by revision. Alembic is imported only for that.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, event, func, inspect, select
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.orm import sessionmaker

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.persistence.postgres_sessions import session_options
from matrixcommon.persistence.table_cache import CachingSession
from services.chassis.database_url import ACCEPTED_URLS, without_credentials
from services.chassis.settings import ServiceSettings
from services.chassis.tracing import trace_statements, tracing_enabled

if TYPE_CHECKING:
    from matrixcommon.persistence.database_session import Database

log = logging.getLogger(__name__)

CONNECT_ATTEMPTS = 60
CONNECT_PAUSE_WALL_S = 0.5
PING_AFTER_IDLE_WALL_S = 1.0
"""A connection used within this time is reused without a ping, which would cost a busy service a round trip for every
transaction."""


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


JSON: dict[str, Any] = {"json_serializer": _json, "json_deserializer": orjson.loads}
"""Serializer and deserializer of JSON columns."""


VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's table with the revision of a database."""

MIGRATION_LOCK_ID = 0x636D333834
"""The number of the PostgreSQL advisory lock for migrations, chosen to be unique: "cm384" in ASCII."""


class UnknownSchema(MatrixError):
    """The database has the tables of another version of this project."""


@dataclass(frozen=True)
class Migrations:
    """The tables of a service as declared now, and the revisions that migrate older databases to them.

    All services begin with the revision in `services/chassis/migrations`; later ones are in a folder of the service,
    written by `python -m tests.upkeep.revision`.
    """

    service: str
    tables: MetaData

    @property
    def folders(self) -> list[Path]:
        here = Path(__file__).parent
        return [here / "migrations" / "versions", here.parent / self.service / "migrations"]

    def revisions(self) -> tuple[set[str], str]:
        """All revisions and the newest one, read without importing them."""
        predecessors: dict[str, str] = {}
        for file in (file for folder in self.folders for file in folder.glob("*.py")):
            found = dict(re.findall(r"^(revision|down_revision)\b[^=]*=\W*(\w+)", file.read_text(), re.MULTILINE))
            predecessors[found["revision"]] = found["down_revision"]
        heads = set(predecessors) - set(predecessors.values())
        if len(heads) != 1:
            raise RuntimeError(f"{self.service}: expected one newest revision, found {sorted(heads)}")
        return set(predecessors), heads.pop()

    def config(self, engine: Engine) -> Any:
        """Alembic's configuration for that engine."""
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(self.folders[0].parent))
        config.set_main_option("path_separator", "newline")
        config.set_main_option(
            "version_locations", "\n".join(str(folder) for folder in self.folders if folder.exists())
        )
        config.attributes |= {"engine": engine, "tables": self.tables}
        return config


class DatabaseEngine:
    """The engine of one service and its session factory."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shared = not url.startswith("sqlite")
        """Whether several replicas of the service may use it; a SQLite file belongs to one process."""
        self.engine: Engine = _sqlite(url) if url.startswith("sqlite") else _server(url)
        if tracing_enabled():
            trace_statements(self.engine)
        # A session used after its end raises, instead of beginning a transaction that is never ended.
        self.sessions: sessionmaker[CachingSession] = sessionmaker(
            self.engine, class_=CachingSession, expire_on_commit=False, close_resets_only=False
        )

    def migrate(self, migrations: Migrations) -> None:
        """Migrate the tables to the newest revision. Waits for a database that is still starting."""
        known, newest = migrations.revisions()
        for attempt in range(CONNECT_ATTEMPTS):
            try:
                current = self._ensure_created(migrations.tables, newest)
                break
            except OperationalError as wrong:
                transient = not self.url.startswith("sqlite") or "locked" in str(wrong)
                if not transient or attempt == CONNECT_ATTEMPTS - 1:
                    raise
                log.warning("waiting for the database", extra={"attempt": attempt, "why": one_line(wrong)})
                time.sleep(CONNECT_PAUSE_WALL_S)
        if current == newest:
            return
        if current not in known:
            raise UnknownSchema(
                f"{self.engine.url.render_as_string()} has the tables of another version (revision {current}), which "
                f"this one ({newest}) cannot read: use the version that made it, or begin with an empty state folder"
            )
        from alembic import command

        log.info("migrating", extra={"to": newest})
        command.upgrade(migrations.config(self.engine), "head")

    def _ensure_created(self, tables: MetaData, newest: str) -> str | None:
        """The revision of the database. In a new one all tables are created first, by the first process to lock it."""
        with self.engine.begin() as connection:
            if not inspect(connection).has_table(VERSION.name):
                lock_migrations(connection)
                tables.create_all(connection)
                VERSION.create(connection, checkfirst=True)
                if connection.execute(select(VERSION)).first() is None:
                    connection.execute(VERSION.insert().values(version_num=newest))
            return connection.execute(select(VERSION.c.version_num)).scalar_one_or_none()

    def close(self) -> None:
        self.engine.dispose()


def open_database(settings: ServiceSettings, migrations: Migrations) -> DatabaseEngine:
    """Open a process's database and migrate it. Exits with one line if it cannot be used or has the tables of another
    version. Raises InvalidField for an invalid URL."""
    url = settings.database_url(migrations.service)
    try:
        database = DatabaseEngine(url)
    except (ArgumentError, ImportError, ValueError) as wrong:
        raise InvalidField(f"{without_credentials(url)}: {wrong}; use {ACCEPTED_URLS}", field="database") from wrong
    try:
        database.migrate(migrations)
    except UnknownSchema as refused:
        raise SystemExit(refused.message) from refused
    except DBAPIError as wrong:
        raise unusable_database(settings, migrations.service, wrong) from wrong
    return database


def unusable_database(settings: ServiceSettings, service: str, wrong: DBAPIError) -> SystemExit:
    """The exit of a process whose database cannot be used: which setting names it, and what is wrong."""
    given = "--database (CLOUDMATRIX_DATABASE)" if settings.database else "--state (CLOUDMATRIX_STATE)"
    return SystemExit(f"{service}: {given}: {without_credentials(settings.database_url(service))}: {one_line(wrong)}")


def one_line(wrong: DBAPIError) -> str:
    """The database's message, in one line."""
    return " ".join(str(wrong.orig).split())


def lock_migrations(connection: Connection) -> None:
    """Lock out other processes that create or migrate tables, until the end of this transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK_ID)))
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver would commit each CREATE by itself


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 15}, **JSON)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-2000"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _server(url: str) -> Engine:
    """An engine for a server. An idle connection is pinged before use, as the server may have restarted. The connection
    used last is used next, as it has the statements prepared."""
    engine = create_engine(url, connect_args={"options": session_options()}, pool_use_lifo=True, **JSON)

    @event.listens_for(engine, "checkin")
    def mark_idle(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def ping_if_idle(connection: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < PING_AFTER_IDLE_WALL_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as wrong:
            raise DisconnectionError("the connection is gone") from wrong

    return engine


def awaited_database(records: Database) -> str | None:
    """What a service waits for if its database takes no writes now: for `/readyz`. Reads may go on."""
    refusal = records.write_health.refusal()
    if refusal is None or database_unavailable_reason(refusal) is None:
        return None
    assert isinstance(refusal, DBAPIError)
    return f"its database, which takes no writes: {one_line(refusal)}"


UNAVAILABLE_SQLSTATES = frozenset({"25006", "25P03"})
"""SQLSTATEs that SQLAlchemy reports as internal errors although they are the server's: a read-only standby, and a
transaction that was idle for too long."""


def database_unavailable_reason(wrong: Exception) -> str | None:
    """Why the database cannot serve any such statement now: it is down, busy, full or read-only. None for any other
    exception. A read-only trigger in SQLite is recognised by its message."""
    if not isinstance(wrong, DBAPIError):
        return None
    refused = getattr(wrong.orig, "sqlstate", None) in UNAVAILABLE_SQLSTATES or "readonly database" in str(wrong.orig)
    return str(wrong.orig) if isinstance(wrong, OperationalError) or refused else None
