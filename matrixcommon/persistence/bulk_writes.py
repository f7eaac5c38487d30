"""Bulk writes: many rows of several tables in few statements and few round trips.

Several verbs of a group may change the same row; only its final values reach the database. Rows of one table that
changed in the same columns share one statement.

SQLite takes many sets of values for one prepared statement, in process. With PostgreSQL every set of values is its own
message, to be written, sent, bound and answered, and every statement is a round trip. There the rows of a statement are
sent as one JSON array that the server expands by the table's row type (json_populate_recordset), and all statements are
sent together in libpq's pipeline mode.
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

KEY_PREFIX = "this_"
"""Prefix of a key column's bind parameter, to distinguish it from a new value for the column."""


class RowMissing(RuntimeError):
    """A row that is cached in memory is not in the database: something writes there without the journal."""


@dataclass
class Write:
    """The write of one row. `there`: it exists in the database. `values`: new values by column; None to delete it."""

    there: bool
    values: Row | None


class PendingWrites:
    """The writes of one transaction: collected row by row, then executed together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Table, Any], Write] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, table: Table, key: Any, values: Row, *, there: bool) -> None:
        """Update an existing row (`there`) with these values, or insert a new one that has all of them."""
        found = self._rows.setdefault((table, key), Write(there, {}))
        found.values = values if found.values is None else found.values | values

    def drop(self, table: Table, key: Any) -> None:
        """Delete a row."""
        self._rows.setdefault((table, key), Write(True, {})).values = None

    def execute(self, connection: Connection) -> None:
        """Execute the writes. Raises RowMissing if a row to be changed or deleted does not exist."""
        steps: dict[Verb, list[Row]] = defaultdict(list)
        for (table, key), row in self._rows.items():
            at = dict(zip(_key_columns(table), key if isinstance(key, tuple) else (key,), strict=True))
            if not row.there:
                if row.values is not None:
                    steps["INSERT", table, frozenset(row.values)].append(row.values)
            elif row.values is None:
                steps["DELETE", table, frozenset()].append(at)
            elif row.values:
                steps["UPDATE", table, frozenset(row.values)].append(row.values | at)
        self._rows.clear()
        ordered = sorted(steps.items(), key=lambda step: step[0][0])
        for (verb, rows), matched in zip(ordered, _execute(connection, ordered), strict=True):
            if matched != len(rows):
                raise RowMissing(f"only {matched} of {len(rows)} rows to be written to {verb[1].name} exist")


def _execute(connection: Connection, steps: Sequence[tuple[Verb, list[Row]]]) -> list[int]:
    """Execute the steps and return how many rows each has matched."""
    if uses_psycopg(connection):
        sent = [
            (_postgresql_statement(*verb), (orjson.dumps(rows, option=JSON_OPTIONS).decode(),)) for verb, rows in steps
        ]
        return [cursor.rowcount for cursor in pipeline(connection, sent)]
    return [
        connection.execute(_generic_statement(*verb), _with_key_parameters(verb, rows)).rowcount for verb, rows in steps
    ]


JSON_OPTIONS = orjson.OPT_NON_STR_KEYS


def uses_psycopg(connection: Connection) -> bool:
    """Whether `pipeline` can be used."""
    return connection.dialect.name == "postgresql" and connection.dialect.driver == "psycopg"


def pipeline(connection: Connection, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """Send these statements to PostgreSQL together, with BEGIN if it is due, and return the driver's cursors.

    Errors are raised as SQLAlchemy's exceptions.
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
    """SQLAlchemy's exception for an error of the driver."""
    kind = OperationalError if isinstance(wrong, dbapi.OperationalError) else DBAPIError
    return kind(statement, None, wrong)


def fetch_one(connection: Connection, statement: str, values: Sequence[Any]) -> Any:
    """The first row of a query, or None, directly through the driver: for queries that every verb makes. Placeholders
    are %s."""
    if uses_psycopg(connection):
        return pipeline(connection, [(statement, values)])[0].fetchone()
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        dbapi: Any = connection.dialect.loaded_dbapi
        try:
            return driver.execute(statement.replace("%s", "?"), values).fetchone()
        except dbapi.Error as wrong:
            raise _database_error(wrong, statement, dbapi) from wrong
    return connection.exec_driver_sql(statement, tuple(values)).fetchone()


# ---- statements, built once


@lru_cache(maxsize=1024)
def _postgresql_statement(verb: str, table: Table, columns: frozenset[str]) -> str:
    """The statement for rows that are sent as one JSON array."""
    from sqlalchemy.dialects import postgresql  # late: importing it with its drivers takes a tenth of the startup time

    quote = postgresql.dialect().identifier_preparer.quote
    name, names = quote(table.name), [quote(column) for column in sorted(columns)]
    sent = f"json_populate_recordset(CAST(NULL AS {name}), CAST(%s AS json)) AS sent"
    this_row = " AND ".join(f"{name}.{quote(key)} = sent.{quote(key)}" for key in _key_columns(table))
    if verb == "INSERT":
        return f"INSERT INTO {name} ({', '.join(names)}) SELECT {', '.join(names)} FROM {sent}"
    if verb == "DELETE":
        return f"DELETE FROM {name} USING {sent} WHERE {this_row}"
    return f"UPDATE {name} SET {', '.join(f'{each} = sent.{each}' for each in names)} FROM {sent} WHERE {this_row}"


@lru_cache(maxsize=1024)
def _generic_statement(verb: str, table: Table, columns: frozenset[str]) -> Executable:
    """The statement for rows as sets of values, as `_with_key_parameters` returns them."""
    this_row = [
        column == bindparam(KEY_PREFIX + column.name, type_=column.type) for column in table.primary_key.columns
    ]
    if verb == "INSERT":
        return insert(table)
    if verb == "DELETE":
        return delete(table).where(*this_row)
    return update(table).where(*this_row).values({name: bindparam(name) for name in sorted(columns)})


def _with_key_parameters(verb: Verb, rows: list[Row]) -> list[Row]:
    if verb[0] == "INSERT":
        return rows
    return [row | {KEY_PREFIX + name: row[name] for name in _key_columns(verb[1])} for row in rows]


@lru_cache(maxsize=256)
def _key_columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.primary_key.columns)
