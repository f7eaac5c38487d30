"""Many rows of several tables in few statements, and on the way as seldom as can be.

SQLite takes many sets of values for one prepared statement, and there is nothing between it and us. To PostgreSQL every
set of values is a message of its own, to be written, sent, bound and answered, and every statement a journey there and
back. There the rows of a statement travel as one JSON array that the server takes apart by the table's own row type
(json_populate_recordset), and all statements together in libpq's pipeline mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import groupby
from typing import Any

import orjson
from sqlalchemy import JSON, Boolean, Connection, Float, Integer, String, Table, bindparam, delete, insert, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.sql.base import Executable

Row = dict[str, Any]

AS_JSON = (JSON, Boolean, Float, Integer, String)
"""Types of columns whose values are the same when they have travelled as JSON."""

KEY = "this_"
"""Before the name of a key's column, to tell it from a value for it."""


class RowMissing(RuntimeError):
    """A row that we had in memory is not in the database: somebody writes there without the journal."""


class BatchWriter:
    """Writes of one transaction: noted, then carried out all at once, in their order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._steps: list[tuple[str | Executable, Any, int, str]] = []
        self._postgresql = by_psycopg(connection)

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """New rows, values by column; all of them have the same columns."""
        if self._as_json(table, rows):
            self._send(_json_insert(table, frozenset(rows[0])), table, rows)
        else:
            self._steps.append((_insert(table), list(rows), len(rows), table.name))

    def update(self, table: Table, columns: frozenset[str], rows: Sequence[Row]) -> None:
        """These columns of rows that are there, which also say their keys."""
        if self._as_json(table, rows):
            self._send(_json_update(table, columns), table, rows)
        else:
            self._steps.append((_update(table, columns), [_keyed(table, row) for row in rows], len(rows), table.name))

    def delete(self, table: Table, keys: Sequence[Row]) -> None:
        """Rows by their keys."""
        if self._as_json(table, keys):
            self._send(_json_delete(table), table, keys)
        else:
            self._steps.append((_delete(table), [_keyed(table, row) for row in keys], len(keys), table.name))

    def carry_out(self) -> None:
        """Raises LostRow where a row that was to be changed is not there."""
        steps, self._steps = self._steps, []
        counts = self._in_one_go(steps) if self._postgresql else [self._execute(*step[:2]) for step in steps]
        for (_, _, meant, name), met in zip(steps, counts, strict=True):
            if met != meant:
                raise RowMissing(f"{met} of {meant} rows of {name} were there to be written")

    def _send(self, statement: str, table: Table, rows: Sequence[Row]) -> None:
        text = orjson.dumps(rows, option=orjson.OPT_NON_STR_KEYS).decode()
        self._steps.append((statement, (text,), len(rows), table.name))

    def _as_json(self, table: Table, rows: Iterable[Row]) -> bool:
        if not self._postgresql or not _plain(table):
            return False
        return all(math.isfinite(value) for row in rows for value in row.values() if type(value) is float)

    def _execute(self, statement: str | Executable, values: Any) -> int:
        assert not isinstance(statement, str)
        return self._connection.execute(statement, values).rowcount

    def _in_one_go(self, steps: Sequence[tuple[str | Executable, Any, int, str]]) -> list[int]:
        counts: list[int] = []
        for plain, run in groupby(steps, key=lambda step: isinstance(step[0], str)):
            if plain:
                counts += self._journey([(str(statement), values) for statement, values, *_ in run])
            else:
                counts += [self._execute(statement, values) for statement, values, *_ in run]
        return counts

    def _journey(self, steps: Sequence[tuple[str, Any]]) -> list[int]:
        return [cursor.rowcount for cursor in pipeline(self._connection, steps)]


def by_psycopg(connection: Connection) -> bool:
    """Whether `one_journey` can be made."""
    return connection.dialect.name == "postgresql" and connection.dialect.driver == "psycopg"


def pipeline(connection: Connection, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """The driver's cursors of these statements, which went to PostgreSQL together; BEGIN, where it is due, with them.

    Errors are reported as SQLAlchemy tells them.
    """
    driver: Any = connection.connection.driver_connection
    dbapi: Any = connection.dialect.loaded_dbapi
    cursors = []
    try:
        with driver.pipeline() if dbapi.Pipeline.is_supported() else nullcontext():
            for statement, values in steps:
                cursors.append(driver.cursor())
                cursors[-1].execute(statement, values)
    except dbapi.Error as wrong:
        if driver.closed:
            connection.invalidate(wrong)
        kind = OperationalError if isinstance(wrong, dbapi.OperationalError) else DBAPIError
        raise kind("; ".join(statement for statement, _ in steps), None, wrong) from wrong
    return cursors


def fetch_one(connection: Connection, statement: str, values: Sequence[Any]) -> Any:
    """The first row of what is asked, or None, by the driver alone: for a question of every verb. Values are marked by
    %s."""
    if by_psycopg(connection):
        return pipeline(connection, [(statement, values)])[0].fetchone()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        return driver.execute(statement.replace("%s", "?"), values).fetchone()
    return connection.exec_driver_sql(statement, tuple(values)).fetchone()


def _keyed(table: Table, row: Row) -> Row:
    return row | {KEY + column.name: row[column.name] for column in table.primary_key.columns}


@lru_cache(maxsize=256)
def _plain(table: Table) -> bool:
    return all(isinstance(column.type, AS_JSON) for column in table.columns)


# ---- statements, made once

_quoted = postgresql.dialect().identifier_preparer.quote


def _sent(table: Table) -> str:
    return f"json_populate_recordset(CAST(NULL AS {_quoted(table.name)}), CAST(%s AS json)) AS sent"


def _same(table: Table) -> str:
    keys = [_quoted(column.name) for column in table.primary_key.columns]
    return " AND ".join(f"{_quoted(table.name)}.{key} = sent.{key}" for key in keys)


@lru_cache(maxsize=256)
def _json_insert(table: Table, columns: frozenset[str]) -> str:
    names = ", ".join(_quoted(name) for name in sorted(columns))
    return f"INSERT INTO {_quoted(table.name)} ({names}) SELECT {names} FROM {_sent(table)}"


@lru_cache(maxsize=1024)
def _json_update(table: Table, columns: frozenset[str]) -> str:
    values = ", ".join(f"{_quoted(name)} = sent.{_quoted(name)}" for name in sorted(columns))
    return f"UPDATE {_quoted(table.name)} SET {values} FROM {_sent(table)} WHERE {_same(table)}"


@lru_cache(maxsize=256)
def _json_delete(table: Table) -> str:
    return f"DELETE FROM {_quoted(table.name)} USING {_sent(table)} WHERE {_same(table)}"


@lru_cache(maxsize=256)
def _insert(table: Table) -> Executable:
    return insert(table)


@lru_cache(maxsize=1024)
def _update(table: Table, columns: frozenset[str]) -> Executable:
    return update(table).where(*_this_row(table)).values({name: bindparam(name) for name in sorted(columns)})


@lru_cache(maxsize=256)
def _delete(table: Table) -> Executable:
    return delete(table).where(*_this_row(table))


def _this_row(table: Table) -> list[Any]:
    return [column == bindparam(KEY + column.name, type_=column.type) for column in table.primary_key.columns]
