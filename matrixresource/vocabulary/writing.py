"""Writes: what a group of verbs changed in kept tables, row by row, written down with as few statements as can be.

Several verbs may change one row; what reaches the database is how it is in the end. Rows of one table that changed in
the same columns share one statement with many sets of values, which psycopg sends in one go.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Table, Update, bindparam, delete, insert, update

from matrixresource.vocabulary.keeping import Shape, shape_of

KEY = "this_"
"""Before the name of a key's column, to tell it from a value for it."""


@dataclass
class Write:
    """One row. `there`: the database has it. `values`: what is to be written, by column; None to delete it."""

    shape: Shape
    key: tuple[Any, ...]
    there: bool
    values: dict[str, Any] | None


class LostRow(RuntimeError):
    """A row that we had in memory is not in the database: somebody writes there without the journal."""


class Writes:
    """Gathered and carried out in one transaction."""

    def __init__(self) -> None:
        self._writes: dict[tuple[type, tuple[Any, ...]], Write] = {}

    def __bool__(self) -> bool:
        return bool(self._writes)

    def put(self, row: Any, changed: dict[str, Any], *, new: bool) -> None:
        """A row is there, `new` or with these attributes changed."""
        shape, found = self._of(row, there=not new)
        values = {shape.columns[attribute]: value for attribute, value in changed.items()}
        found.values = values if found.values is None else found.values | values

    def drop(self, row: Any) -> None:
        """A row is no more."""
        _, found = self._of(row, there=True)
        found.values = None

    def _of(self, row: Any, *, there: bool) -> tuple[Shape, Write]:
        shape = shape_of(type(row))
        key = shape.key(row)
        key = key if isinstance(key, tuple) else (key,)
        at = (type(row), key)
        found = self._writes.get(at)
        if found is None:
            found = self._writes[at] = Write(shape, key, there, {})
        return shape, found

    def carry_out(self, connection: Connection) -> None:
        """Write all of it down. Raises LostRow."""
        gone: dict[Shape, list[dict[str, Any]]] = defaultdict(list)
        new: dict[Shape, list[dict[str, Any]]] = defaultdict(list)
        changed: dict[tuple[Shape, frozenset[str]], list[dict[str, Any]]] = defaultdict(list)
        for each in self._writes.values():
            key = {KEY + name: value for name, value in zip(each.shape.key_columns, each.key, strict=True)}
            if each.values is None:
                if each.there:
                    gone[each.shape].append(key)
            elif not each.there:
                new[each.shape].append(each.values)
            elif each.values:
                changed[each.shape, frozenset(each.values)].append(each.values | key)
        self._writes.clear()
        for shape, keys in gone.items():
            _all_met(connection.execute(_delete(shape.table), keys).rowcount, len(keys), shape)
        for shape, rows in new.items():
            connection.execute(_insert(shape.table), rows)
        for (shape, columns), rows in changed.items():
            _all_met(connection.execute(_update(shape.table, columns), rows).rowcount, len(rows), shape)


def _all_met(met: int, meant: int, shape: Shape) -> None:
    if met != meant:
        raise LostRow(f"{meant - met} of {meant} rows of {shape.table.name} are not in the database")


@lru_cache(maxsize=256)
def _insert(table: Table) -> Insert:
    return insert(table)


@lru_cache(maxsize=256)
def _delete(table: Table) -> Delete:
    return delete(table).where(*_this_row(table))


@lru_cache(maxsize=1024)
def _update(table: Table, columns: frozenset[str]) -> Update:
    return update(table).where(*_this_row(table)).values({name: bindparam(name) for name in sorted(columns)})


def _this_row(table: Table) -> list[Any]:
    return [column == bindparam(KEY + column.name, type_=column.type) for column in table.primary_key.columns]
