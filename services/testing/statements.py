"""Compile SQL statements once per test process, however many databases it opens.

SQLAlchemy caches compiled statements per engine, and each life of a service has a new engine: some 300 statements per
stack, a thirtieth of a scenario test's time.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.util import LRUCache

from services.chassis.database import DatabaseEngine

COMPILED_MAX = 4000

_dialects: dict[str, Dialect] = {}
_compiled: LRUCache[Any, Any] = LRUCache(COMPILED_MAX)


def share_statements(database: DatabaseEngine) -> DatabaseEngine:
    """Let the database use the shared cache of compiled statements, and return it. To be called before the first
    connection. Statements are cached per dialect object, so the databases share that as well."""
    engine = database.engine
    engine.dialect = _dialects.setdefault(engine.dialect.name, engine.dialect)
    engine.update_execution_options(compiled_cache=_compiled)
    return database
