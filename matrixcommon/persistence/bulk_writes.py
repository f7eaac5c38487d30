"""Many rows of several tables in few statements, and on the way as seldom as can be.

Several verbs of a group may change one row; what reaches the database is how it is in the end. Rows of one table that
changed in the same columns share one statement.

SQLite takes many sets of values for one prepared statement, and there is nothing between it and us. To PostgreSQL every
set of values is a message of its own, to be written, sent, bound and answered, and every statement a journey there and
back. There the rows of a statement travel as one JSON array that the server takes apart by the table's own row type
(json_populate_recordset), and all statements together in libpq's pipeline mode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Connection, Table, bindparam, delete, insert, update
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.sql.base import Executable

Row = dict[str, Any]
Verb = tuple[str, Table, frozenset[str]]
"""DELETE, INSERT or UPDATE; the table, and the columns that are written."""

KEY = "this_"
"""Before the name of a key's column, to tell it from a value for it."""


class RowMissing(RuntimeError):
    """A row that we had in memory is not in the database: somebody writes there without the journal."""


@dataclass
class Write:
    """One row. `there`: the database has it. `values`: what is to be written, by column; None to delete it."""

    there: bool
    values: Row | None


class PendingWrites:
    """Writes of one transaction: noted row by row, then carried out all at once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Table, Any], Write] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, table: Table, key: Any, values: Row, *, there: bool) -> None:
        """A row is there with these values changed, or is new and has them all."""
        found = self._rows.setdefault((table, key), Write(there, {}))
        found.values = values if found.values is None else found.values | values

    def drop(self, table: Table, key: Any) -> None:
        """A row is no more."""
        self._rows.setdefault((table, key), Write(True, {})).values = None

    def carry_out(self, connection: Connection) -> None:
        """Raises RowMissing where a row that was to be changed is not there."""
        steps: dict[Verb, list[Row]] = defaultdict(list)
        for (table, key), row in self._rows.items():
            at = dict(zip(_keys(table), key if isinstance(key, tuple) else (key,), strict=True))
            if not row.there:
                if row.values is not None:
                    steps["INSERT", table, frozenset(row.values)].append(row.values)
            elif row.values is None:
                steps["DELETE", table, frozenset()].append(at)
            elif row.values:
                steps["UPDATE", table, frozenset(row.values)].append(row.values | at)
        self._rows.clear()
        ordered = sorted(steps.items(), key=lambda step: step[0][0])
        for (verb, rows), met in zip(ordered, _written(connection, ordered), strict=True):
            if met != len(rows):
                raise RowMissing(f"{met} of {len(rows)} rows of {verb[1].name} were there to be written")


def _written(connection: Connection, steps: Sequence[tuple[Verb, list[Row]]]) -> list[int]:
    """How many rows each step has met."""
    if by_psycopg(connection):
        sent = [(_on_postgresql(*verb), (orjson.dumps(rows, option=JSON).decode(),)) for verb, rows in steps]
        return [cursor.rowcount for cursor in pipeline(connection, sent)]
    return [connection.execute(_anywhere(*verb), _keyed(verb, rows)).rowcount for verb, rows in steps]


JSON = orjson.OPT_NON_STR_KEYS


def by_psycopg(connection: Connection) -> bool:
    """Whether there can be a `pipeline`."""
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
        raise _database_error(wrong, "; ".join(statement for statement, _ in steps), dbapi) from wrong
    return cursors


def _database_error(wrong: Exception, statement: str, dbapi: Any) -> DBAPIError:
    """An error of the driver's as SQLAlchemy tells it."""
    kind = OperationalError if isinstance(wrong, dbapi.OperationalError) else DBAPIError
    return kind(statement, None, wrong)


def fetch_one(connection: Connection, statement: str, values: Sequence[Any]) -> Any:
    """The first row of what is asked, or None, by the driver alone: for a question of every verb. Values are marked by
    %s."""
    if by_psycopg(connection):
        return pipeline(connection, [(statement, values)])[0].fetchone()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        dbapi: Any = connection.dialect.loaded_dbapi
        try:
            return driver.execute(statement.replace("%s", "?"), values).fetchone()
        except dbapi.Error as wrong:
            raise _database_error(wrong, statement, dbapi) from wrong
    return connection.exec_driver_sql(statement, tuple(values)).fetchone()


# ---- statements, made once


@lru_cache(maxsize=1024)
def _on_postgresql(verb: str, table: Table, columns: frozenset[str]) -> str:
    """For rows that travel as one JSON array."""
    from sqlalchemy.dialects import postgresql  # with all its drivers' a tenth of a start, for whoever is not on SQLite

    quote = postgresql.dialect().identifier_preparer.quote
    name, names = quote(table.name), [quote(column) for column in sorted(columns)]
    sent = f"json_populate_recordset(CAST(NULL AS {name}), CAST(%s AS json)) AS sent"
    this_row = " AND ".join(f"{name}.{quote(key)} = sent.{quote(key)}" for key in _keys(table))
    if verb == "INSERT":
        return f"INSERT INTO {name} ({', '.join(names)}) SELECT {', '.join(names)} FROM {sent}"
    if verb == "DELETE":
        return f"DELETE FROM {name} USING {sent} WHERE {this_row}"
    return f"UPDATE {name} SET {', '.join(f'{each} = sent.{each}' for each in names)} FROM {sent} WHERE {this_row}"


@lru_cache(maxsize=1024)
def _anywhere(verb: str, table: Table, columns: frozenset[str]) -> Executable:
    """For rows as sets of values; those of `_keyed`, where they are there already."""
    this_row = [column == bindparam(KEY + column.name, type_=column.type) for column in table.primary_key.columns]
    if verb == "INSERT":
        return insert(table)
    if verb == "DELETE":
        return delete(table).where(*this_row)
    return update(table).where(*this_row).values({name: bindparam(name) for name in sorted(columns)})


def _keyed(verb: Verb, rows: list[Row]) -> list[Row]:
    if verb[0] == "INSERT":
        return rows
    return [row | {KEY + name: row[name] for name in _keys(verb[1])} for row in rows]


@lru_cache(maxsize=256)
def _keys(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key.columns)
