"""A session that keeps whole tables in memory from one transaction to the next.

Loading what a verb decides on costs more than deciding. A service that is informed of every change of some small
tables, by the number of the journal, need not read them again while nobody else has changed anything: `CachingSession`
answers for them from memory, with rows that are the session's own, so that whatever else is asked of the database sees
the same objects. What changed is found by comparing each row with how it was last written down.

A session that has failed in any way is thrown away with all it kept; nothing is ever undone in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Table, event, inspect, select
from sqlalchemy.orm import Mapper, Session, class_mapper, object_session

T = TypeVar("T")
MISSING = object()


@dataclass(frozen=True)
class CachedTable:
    """A mapped class to be kept whole, and the attributes by whose value its rows are asked for."""

    kind: type
    by: tuple[str, ...] = ()


class RowMapping:
    """How a class is mapped on its one table."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        mapper: Mapper[Any] = class_mapper(kind)
        assert isinstance(mapper.local_table, Table)
        self.table: Table = mapper.local_table
        self.columns: dict[str, str] = {each.key: each.columns[0].key for each in mapper.column_attrs}
        self.attributes = tuple(self.columns)
        keys = tuple(mapper.get_property_by_column(column).key for column in mapper.primary_key)
        self.key: Callable[[Any], Any] = attrgetter(*keys)
        self.key_columns: tuple[str, ...] = tuple(column.name for column in mapper.primary_key)
        self._defaults = {
            each.key: each.columns[0].default for each in mapper.column_attrs if each.columns[0].default is not None
        }

    def made(self, **values: Any) -> Any:
        """A new row with these values by attribute and defaults for all others, in a fraction of the time that the
        constructor takes, which announces one value after the other to nobody."""
        row = self._kind()
        row.__dict__.update(values)
        self.complete(row)
        return row

    def complete(self, row: Any) -> None:
        """Give a new row the values that its columns would have by default."""
        current = row.__dict__
        for attribute in self.attributes:
            if attribute not in current:
                default = self._defaults.get(attribute)
                # Past the instrumentation: a row that nobody has written yet has no history to keep.
                current[attribute] = (
                    None if default is None else default.arg(None) if default.is_callable else default.arg
                )

    def values(self, row: Any) -> dict[str, Any]:
        """All values, by attribute."""
        current = row.__dict__
        return {attribute: current[attribute] for attribute in self.attributes}


_SHAPES: dict[type, RowMapping] = {}


def shape_of(kind: type) -> RowMapping:
    found = _SHAPES.get(kind)
    if found is None:
        found = _SHAPES[kind] = RowMapping(kind)
    return found


class TableCache:
    """The rows of some tables, all of them, as they are in the transaction under way."""

    def __init__(self, keeps: Iterable[CachedTable]) -> None:
        self._rows: dict[type, dict[Any, Any]] = {}
        self._by: dict[tuple[type, str], dict[Any, dict[Any, None]]] = {}
        self._at: dict[tuple[Any, str], Any] = {}  # under which value a row is found
        self._written: dict[Any, dict[str, Any]] = {}
        for keep in keeps:
            self._rows[keep.kind] = {}
            for attribute in keep.by:
                self._by[keep.kind, attribute] = {}
                _follow(keep.kind, attribute)

    def __contains__(self, kind: object) -> bool:
        return kind in self._rows

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def get(self, kind: type[T], key: Any) -> T | None:
        return self._rows[kind].get(key)

    def all(self, kind: type[T]) -> Iterator[T]:
        return iter(self._rows[kind].values())

    def where(self, kind: type[T], attribute: str, value: Any) -> list[T]:
        """The rows whose `attribute`, one of those to ask by, is `value`; in no order."""
        return list(self._by[kind, attribute].get(value, ()))

    def is_by(self, kind: type, attribute: str) -> bool:
        """Whether that is one of the attributes to ask by."""
        return (kind, attribute) in self._by

    def has(self, row: Any, attribute: str) -> bool:
        """Whether this row is one of these and found by that attribute."""
        return (row, attribute) in self._at

    def enter(self, row: Any) -> None:
        kind = type(row)
        self._rows[kind][shape_of(kind).key(row)] = row
        for each, attribute in self._by:
            if each is kind:
                self.moved(row, attribute, getattr(row, attribute))

    def leave(self, row: Any) -> None:
        kind = type(row)
        key = shape_of(kind).key(row)
        if self._rows[kind].get(key) is row:
            del self._rows[kind][key]
        for each, attribute in self._by:
            if each is kind:
                self.moved(row, attribute, MISSING)

    def moved(self, row: Any, attribute: str, value: Any) -> None:
        """A row's `attribute` is `value` now."""
        index = self._by[type(row), attribute]
        was = self._at.pop((row, attribute), MISSING)
        if was is not MISSING:
            del index[was][row]
            if not index[was]:
                del index[was]
        if value is not MISSING:
            index.setdefault(value, {})[row] = None
            self._at[row, attribute] = value

    # ---- what changed

    def changes(self, row: Any) -> dict[str, Any]:
        """By attribute what is not as it was last written down; of a new row all there is."""
        was = self._written.get(row)
        shape = shape_of(type(row))
        if was is None:
            return shape.values(row)
        current, changed = row.__dict__, {}
        for attribute in shape.attributes:
            now = current[attribute] if attribute in current else getattr(row, attribute)
            if now is not was[attribute] and now != was[attribute]:
                changed[attribute] = now
        return changed

    def written(self, row: Any) -> None:
        """It is written down as it is now."""
        self._written[row] = shape_of(type(row)).values(row)

    def forgotten(self, row: Any) -> None:
        """It was deleted."""
        self._written.pop(row, None)


class CachingSession(Session):
    """An ordinary session until it is informed what to keep."""

    kept: TableCache | None = None

    def keep(self, keeps: Iterable[CachedTable]) -> None:
        """Read these tables, and answer for them from memory from now on."""
        keeps = tuple(keeps)
        kept = TableCache(keeps)
        for each in keeps:
            rows: Iterable[Any] = self.scalars(select(each.kind))
            for row in rows:
                kept.enter(row)
                kept.written(row)
        self.kept = kept

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        if self.kept is not None and not options and entity in self.kept:
            return self.kept.get(entity, ident)
        return super().get(entity, ident, **options)

    def add(self, instance: object, **options: Any) -> None:
        if self.kept is None or type(instance) not in self.kept:
            super().add(instance, **options)
            return
        self._save_or_update_impl(inspect(instance))  # a row of one table has nothing to cascade to
        shape_of(type(instance)).complete(instance)
        self.kept.enter(instance)

    def add_all(self, instances: Iterable[object]) -> None:
        for each in instances:
            self.add(each)

    def delete(self, instance: object) -> None:
        if inspect(instance).pending:
            self.expunge(instance)  # nobody has heard of it
        else:
            super().delete(instance)
        if self.kept is not None and type(instance) in self.kept:
            self.kept.leave(instance)

    def mark_clean(self, row: Any, *, gone: bool) -> None:
        """A kept row is as good as written, or deleted, by somebody else than this session."""
        assert self.kept is not None
        if gone:
            self.expunge(row)
            self.kept.forgotten(row)
            return
        state = inspect(row)
        state._commit_all(row.__dict__, self.identity_map)  # as the session itself does after a flush
        self.kept.written(row)

    def settled_new(self, rows: Sequence[Any]) -> None:
        """New rows of kept tables are as good as written."""
        assert self.kept is not None
        self._register_persistent({inspect(row) for row in rows})  # as the session itself does after a flush
        for row in rows:
            self.kept.written(row)

    def expunge_uncached(self) -> None:
        """Forget every row that is not of a kept table: nobody would tell us of its changes."""
        if self.kept is None or len(self.identity_map) == len(self.kept):
            return
        for row in list(self.identity_map.values()):
            if type(row) not in self.kept:
                self.expunge(row)


def kept_by(session: Session) -> TableCache | None:
    """What a session answers for from memory, if anything."""
    return session.kept if isinstance(session, CachingSession) else None


def all_rows(session: Session, kind: type[T]) -> list[T]:
    """All rows of a kind, from memory where they are kept; in no order."""
    kept = kept_by(session)
    return list(kept.all(kind) if kept is not None and kind in kept else session.scalars(select(kind)))


_FOLLOWED: set[tuple[type, str]] = set()


def _follow(kind: type, attribute: str) -> None:
    """Have rows found under the new value as soon as it is set."""
    if (kind, attribute) in _FOLLOWED:
        return
    _FOLLOWED.add((kind, attribute))

    def on_set(row: Any, value: Any, before: Any, initiator: Any) -> None:
        session = object_session(row)
        kept = kept_by(session) if session is not None else None
        if kept is not None and kept.has(row, attribute):
            kept.moved(row, attribute, value)

    event.listen(getattr(kind, attribute), "set", on_set)
