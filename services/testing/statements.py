"""Statements are compiled once in a process of tests, however many databases there are.

SQLAlchemy keeps what it compiles with the engine that it was for, and each life of a service has an engine of its own:
some 300 statements a stack, a thirtieth of what its story takes.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.util import LRUCache

from services.chassis.database import DatabaseEngine

COMPILED_MAX = 4000

_dialects: dict[str, Dialect] = {}
_compiled: LRUCache[Any, Any] = LRUCache(COMPILED_MAX)


def sharing_statements(database: DatabaseEngine) -> DatabaseEngine:
    """The same, with the statements that others have compiled; before it was connected to. A statement is found by the
    dialect that it was compiled for, so they have one."""
    engine = database.engine
    engine.dialect = _dialects.setdefault(engine.dialect.name, engine.dialect)
    engine.update_execution_options(compiled_cache=_compiled)
    return database
