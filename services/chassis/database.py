"""A service's database: the engine, and migrations up to the newest before the first request.

SQLite runs in WAL mode with full sync, so an acknowledged write survives the end of the process and of the machine.
PostgreSQL is the same code behind another URL. Alembic is imported only when there is something to migrate.
"""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DisconnectionError, OperationalError
from sqlalchemy.orm import sessionmaker

from matrixcommon.model.errors import MatrixError
from matrixcommon.persistence.table_cache import CachingSession

log = logging.getLogger(__name__)

CONNECT_TRIES = 60
CONNECT_PAUSE_WALL_S = 0.5
TRUSTED_IDLE_WALL_S = 1.0
"""A connection that was used within this time is used again without trying it first: that would be a journey there and
back for every transaction of a busy service."""


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


JSON: dict[str, Any] = {"json_serializer": _json, "json_deserializer": orjson.loads}
"""How JSON columns are written and read."""


class UnknownSchema(MatrixError):
    """The tables are those of another version of this project."""


class DatabaseEngine:
    """The engine of one service and a maker of sessions."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine: Engine = _sqlite(url) if url.startswith("sqlite") else _server(url)
        self.sessions: sessionmaker[CachingSession] = sessionmaker(
            self.engine, class_=CachingSession, expire_on_commit=False
        )

    def migrate(self, migrations: Path) -> None:
        """Bring the schema to the newest revision in `migrations`. Waits for a database that is still starting."""
        known, newest = revisions(migrations)
        current = self._revision()
        if current == newest:
            return
        if current is not None and current not in known:
            raise UnknownSchema(
                f"{self.engine.url.render_as_string()} has the tables of another version (revision {current}), which "
                f"this one ({newest}) cannot read: use the version that made it, or begin with an empty state folder"
            )
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(migrations))
        config.attributes["engine"] = self.engine
        log.info("migrating", extra={"to": newest})
        command.upgrade(config, "head")

    def _revision(self) -> str | None:
        for attempt in range(CONNECT_TRIES):
            try:
                with self.engine.connect() as connection:
                    if not inspect(connection).has_table("alembic_version"):
                        return None
                    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
            except OperationalError:
                if self.url.startswith("sqlite") or attempt == CONNECT_TRIES - 1:
                    raise
                log.warning("database is not there yet", extra={"attempt": attempt})
                time.sleep(CONNECT_PAUSE_WALL_S)
        return None

    def close(self) -> None:
        self.engine.dispose()


def opened(url: str, migrations: Path) -> DatabaseEngine:
    """A process's database with the newest tables; the process ends with a sentence where it has another version's."""
    database = DatabaseEngine(url)
    try:
        database.migrate(migrations)
    except UnknownSchema as refused:
        raise SystemExit(refused.message) from refused
    return database


def revisions(migrations: Path) -> tuple[set[str], str]:
    """All revisions in `versions/` and the one that no other file follows, read without importing them."""
    followed: dict[str, str] = {}
    for file in (migrations / "versions").glob("*.py"):
        found = dict(re.findall(r'^(revision|down_revision)\b[^=]*= *"?(\w+)"?', file.read_text(), re.MULTILINE))
        followed[found["revision"]] = found.get("down_revision", "None")
    heads = set(followed) - set(followed.values())
    if len(heads) != 1:
        raise RuntimeError(f"{migrations}: expected one newest revision, found {sorted(heads)}")
    return set(followed), heads.pop()


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": 15}, **JSON)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-2000"):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _server(url: str) -> Engine:
    """A connection that has lain idle is tried before it is used: the server may have gone and come back."""
    engine = create_engine(url, **JSON)

    @event.listens_for(engine, "checkin")
    def lay_down(connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def take_up(connection: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < TRUSTED_IDLE_WALL_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as wrong:
            raise DisconnectionError("the connection has gone") from wrong

    return engine
