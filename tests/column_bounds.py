"""What PostgreSQL refuses to store is refused on SQLite too: texts longer than their column, numbers beyond it, NUL.

SQLite keeps whatever it is given, so a value that no check at the door bounds would pass every test on it and end in a
500 with PostgreSQL. `install` makes all engines of this process as strict; the error is the driver's, as it would be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, Engine, Insert, Integer, String, Update, event
from sqlalchemy.exc import DataError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

Check = Callable[[Any], str | None]
"""Why PostgreSQL does not take a value, or nothing."""


def install() -> None:
    """Have every statement's values compared with the columns they are for. Calling it again changes nothing."""
    if not event.contains(Engine, "before_cursor_execute", _compare):
        event.listen(Engine, "before_cursor_execute", _compare)


def check_of(column: TypeEngine[Any], stored: bool) -> Check | None:
    """How a parameter of this type is judged, which is `stored` or only compared with; nothing where any will do."""
    if isinstance(column, String):
        return _text(column.length if stored else None)
    if isinstance(column, Integer) and stored:
        bits = 63 if isinstance(column, BigInteger) else 31
        return lambda value: None if -(1 << bits) <= value < 1 << bits else f"{value} is out of range ({bits + 1} bits)"
    return None


def _text(length: int | None) -> Check:
    def judged(value: Any) -> str | None:
        if length is not None and len(value) > length:
            return f"value too long for type character varying({length}): {value[:40]!r}..."
        return f"text with NUL: {value[:40]!r}" if "\0" in value else None

    return judged


CHECKS = "_column_checks"
"""Where a statement, which SQLAlchemy keeps compiled, has the parameters to judge: looked up at every execution."""


def _checks_of(compiled: SQLCompiler) -> list[tuple[str, Check]]:
    known: list[tuple[str, Check]] | None = compiled.__dict__.get(CHECKS)
    if known is None:
        statement = compiled.statement
        columns = {column.key for column in statement.table.c} if isinstance(statement, Update) else set()
        found = (
            (name, check_of(bind.type, isinstance(statement, Insert) or name in columns))
            for bind, name in compiled.bind_names.items()
        )
        known = compiled.__dict__[CHECKS] = [(name, check) for name, check in found if check is not None]
    return known


def _compare(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
    compiled = getattr(context, "compiled", None)
    if not isinstance(compiled, SQLCompiler) or not (checks := _checks_of(compiled)):
        return
    for values in context.compiled_parameters:
        for name, check in checks:
            value = values.get(name)
            if value is not None and (wrong := check(value)) is not None:
                raise DataError(statement, parameters, ValueError(f"{name}: {wrong}"))
