"""Writes: what a group of verbs changed in kept tables, row by row, written down with as few statements as can be.

Several verbs may change one row; what reaches the database is how it is in the end. Rows of one table that changed in
the same columns share one statement.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from matrixcommon.persistence.bulk_writes import BatchWriter, Row
from matrixcommon.persistence.table_cache import RowMapping, shape_of


@dataclass
class Write:
    """One row. `there`: the database has it. `values`: what is to be written, by column; None to delete it."""

    shape: RowMapping
    key: tuple[Any, ...]
    there: bool
    values: dict[str, Any] | None


class PendingWrites:
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

    def _of(self, row: Any, *, there: bool) -> tuple[RowMapping, Write]:
        shape = shape_of(type(row))
        key = shape.key(row)
        key = key if isinstance(key, tuple) else (key,)
        at = (type(row), key)
        found = self._writes.get(at)
        if found is None:
            found = self._writes[at] = Write(shape, key, there, {})
        return shape, found

    def add_to(self, bulk: BatchWriter) -> None:
        """Have all of it written down."""
        gone: dict[RowMapping, list[Row]] = defaultdict(list)
        new: dict[RowMapping, list[Row]] = defaultdict(list)
        changed: dict[tuple[RowMapping, frozenset[str]], list[Row]] = defaultdict(list)
        for each in self._writes.values():
            key = dict(zip(each.shape.key_columns, each.key, strict=True))
            if each.values is None:
                if each.there:
                    gone[each.shape].append(key)
            elif not each.there:
                new[each.shape].append(each.values)
            elif each.values:
                changed[each.shape, frozenset(each.values)].append(each.values | key)
        self._writes.clear()
        for shape, keys in gone.items():
            bulk.delete(shape.table, keys)
        for shape, rows in new.items():
            bulk.insert(shape.table, rows)
        for (shape, columns), rows in changed.items():
            bulk.update(shape.table, columns, rows)
