"""Cache of whole tables in memory across transactions.

Loading the rows for a decision costs more than the decision. The journal's number shows whether anybody else has
changed anything; while nobody has, small tables need not be read again, and `CachingSession` answers from memory. Their
rows are mapped objects that belong to no SQLAlchemy session: changes to them are tracked as they happen, compared with
the values last written, and written with the group of verbs.

A cache is discarded after any failed transaction; nothing is ever undone in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import Select, Table, bindparam, event, select
from sqlalchemy.orm import Mapper, ORMExecuteState, Session, class_mapper

from matrixcommon.persistence.bulk_writes import PendingWrites

T = TypeVar("T")


@dataclass(frozen=True)
class CachedTable:
    """A mapped class whose whole table is cached, and the attributes by which its rows are looked up."""

    kind: type
    by: tuple[str, ...] = ()


class RowMapping:
    """The mapping of a class to its single table, with every column under its own name."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        mapper: Mapper[Any] = class_mapper(kind)
        assert isinstance(mapper.local_table, Table)
        self.table: Table = mapper.local_table
        self.attributes = tuple(each.key for each in mapper.column_attrs)
        self.key: Callable[[Any], Any] = attrgetter(*(column.name for column in mapper.primary_key))
        self._defaults = {each.name: each.default for each in self.table.columns if each.default is not None}
        self._identity = mapper.identity_key_from_primary_key
        column, *more = mapper.primary_key
        self.all_rows: Select[Any] = select(kind)
        self._by_key: Select[Any] | None = None
        """A query by key, for keys of one column; built once, since that takes as long as running it."""
        if not more:
            self._by_key = select(kind).where(column == bindparam("key", type_=column.type))

    def made(self, **values: Any) -> Any:
        """A new row with these values by attribute and defaults for all others, in a fraction of the constructor's
        time, which fires an event per attribute."""
        row = self._kind()
        row.__dict__.update(values)
        self.complete(row)
        return row

    def complete(self, row: Any) -> None:
        """Set a new row's missing attributes to the defaults of their columns."""
        current = row.__dict__
        for attribute in self.attributes:
            if attribute not in current:
                default: Any = self._defaults.get(attribute)
                # Bypasses instrumentation: an unwritten row has no history to keep.
                current[attribute] = (
                    None if default is None else default.arg(None) if default.is_callable else default.arg
                )

    def loaded(self, session: Session, key: Any) -> tuple[Any] | None:
        """A tuple of the row of that key, or of None if there is none. Returns None if the session already has the row
        or the key has several columns: then use the session itself."""
        if self._by_key is None or not isinstance(key, str | int) or self._identity((key,)) in session.identity_map:
            return None
        return (session.scalars(self._by_key, {"key": key}).one_or_none(),)

    def values(self, row: Any) -> dict[str, Any]:
        """All values, by attribute."""
        current = row.__dict__
        return {attribute: current[attribute] for attribute in self.attributes}


_MAPPINGS: dict[type, RowMapping] = {}


def mapping_of(kind: type) -> RowMapping:
    found = _MAPPINGS.get(kind)
    if found is None:
        found = _MAPPINGS[kind] = RowMapping(kind)
    return found


class TableCache:
    """All rows of some tables, as they are in the current transaction."""

    def __init__(self, keeps: Iterable[CachedTable], session: Session) -> None:
        self._rows: dict[type, dict[Any, Any]] = {}
        self._by: dict[type, dict[str, dict[Any, dict[Any, None]]]] = {}
        self._written: dict[Any, dict[str, Any]] = {}
        self._touched: dict[Any, None] = {}
        """Rows that were added, deleted or changed since the last `note`."""
        for keep in keeps:
            self._rows[keep.kind], self._by[keep.kind] = {}, {attribute: {} for attribute in keep.by}
            _track_attributes(keep.kind)
            found: Sequence[Any] = session.scalars(select(keep.kind)).all()
            session.expunge_all()
            for row in found:
                self._enter(row)
                self._written[row] = mapping_of(keep.kind).values(row)

    def __contains__(self, kind: object) -> bool:
        return kind in self._rows

    def get(self, kind: type[T], key: Any) -> T | None:
        return self._rows[kind].get(key)

    def all(self, kind: type[T]) -> list[T]:
        return list(self._rows[kind].values())

    def where(self, kind: type[T], attribute: str, values: Iterable[Any]) -> list[T]:
        """The rows whose `attribute` (the key or one in `CachedTable.by`) is among `values`; in no order."""
        if (index := self._by[kind].get(attribute)) is not None:
            return [row for value in values for row in index.get(value, ())]
        rows = self._rows[kind]
        return [rows[value] for value in values if value in rows]

    def add(self, row: Any) -> None:
        self._enter(row)
        self._touched[row] = None

    def delete(self, row: Any) -> None:
        kind = type(row)
        del self._rows[kind][mapping_of(kind).key(row)]
        for attribute, index in self._by[kind].items():
            _remove_from_index(index, getattr(row, attribute), row)
        del row.__dict__[CACHE_ATTRIBUTE]
        self._touched[row] = None

    def set(self, row: Any, attribute: str, before: Any, value: Any) -> None:
        """Track that a row's `attribute` changed to `value`."""
        self._touched[row] = None
        if (index := self._by[type(row)].get(attribute)) is not None and value != before:
            _remove_from_index(index, before, row)
            index.setdefault(value, {})[row] = None

    def differs(self, row: Any) -> bool:
        """Whether a row differs from its last noted values."""
        was = self._written.get(row)
        return row in self._touched and (was is None or bool(_changed_values(row, was)))

    def _enter(self, row: Any) -> None:
        kind = type(row)
        self._rows[kind][mapping_of(kind).key(row)] = row
        for attribute, index in self._by[kind].items():
            index.setdefault(getattr(row, attribute), {})[row] = None
        row.__dict__[CACHE_ATTRIBUTE] = self

    # ---- what changed

    def changes(self) -> tuple[list[Any], list[Any], list[Any]]:
        """The rows deleted, added and changed since the last `note`."""
        deleted, new, changed = [], [], []
        for row in self._touched:
            was = self._written.get(row)
            if CACHE_ATTRIBUTE not in row.__dict__:
                if was is not None:
                    deleted.append(row)
            elif was is None:
                new.append(row)
            elif _changed_values(row, was):
                changed.append(row)
        return deleted, new, changed

    def note(self, writes: PendingWrites) -> None:
        """Add what changed to the writes."""
        touched, self._touched = self._touched, {}
        for row in touched:  # deletions first, since a new row may have the same key
            if CACHE_ATTRIBUTE not in row.__dict__ and self._written.pop(row, None) is not None:
                shape = mapping_of(type(row))
                writes.drop(shape.table, shape.key(row))
        for row in touched:
            if CACHE_ATTRIBUTE in row.__dict__:
                shape, was = mapping_of(type(row)), self._written.get(row)
                if was is None:
                    self._written[row] = shape.values(row)
                    writes.put(shape.table, shape.key(row), shape.values(row), there=False)
                elif differs := _changed_values(row, was):
                    was |= differs
                    writes.put(shape.table, shape.key(row), differs, there=True)


def _changed_values(row: Any, was: dict[str, Any]) -> dict[str, Any]:
    current = row.__dict__
    return {name: current[name] for name, value in was.items() if current[name] is not value and current[name] != value}


CACHE_ATTRIBUTE = "_followed_by"
"""The row attribute that refers to its cache."""


def _remove_from_index(index: dict[Any, dict[Any, None]], value: Any, row: Any) -> None:
    del index[value][row]
    if not index[value]:
        del index[value]


_TRACKED: set[type] = set()


def _track_attributes(kind: type) -> None:
    """Report every attribute set on such rows to the cache that they are in."""
    if kind in _TRACKED:
        return
    _TRACKED.add(kind)

    def on_set(state: Any, value: Any, before: Any, initiator: Any) -> Any:
        found: TableCache | None = state.dict.get(CACHE_ATTRIBUTE)
        if found is not None and value is not before:
            found.set(state.obj(), initiator.key, before, value)
        return value

    for attribute in mapping_of(kind).attributes:
        event.listen(getattr(kind, attribute), "set", on_set, raw=True, retval=True)


class Writer(Protocol):
    """Holds changes in memory that must be written before the session flushes or executes a statement."""

    def before_flush(self) -> None: ...

    def before_execute(self, *, writes: bool) -> None: ...


class CachingSession(Session):
    """A session that answers from memory for the tables in its cache and is ordinary for all others. A new row has its
    columns' defaults as soon as it is added."""

    cache: TableCache | None = None
    writer: Writer | None = None
    wrote = False
    """Whether it has sent anything other than a SELECT through the ORM."""

    def get(self, entity: Any, ident: Any, **options: Any) -> Any:
        if not options:
            if self.cache is not None and entity in self.cache:
                return self.cache.get(entity, ident)
            if (loaded := mapping_of(entity).loaded(self, ident)) is not None:
                return loaded[0]
        return super().get(entity, ident, **options)

    def add(self, instance: object, **options: Any) -> None:
        mapping_of(type(instance)).complete(instance)
        if self.cache is not None and type(instance) in self.cache:
            self.cache.add(instance)
        else:
            super().add(instance, **options)

    def delete(self, instance: object) -> None:
        if self.cache is not None and type(instance) in self.cache:
            self.cache.delete(instance)
        else:
            super().delete(instance)

    def is_modified(self, instance: object, include_collections: bool = True) -> bool:
        if self.cache is not None and type(instance) in self.cache:
            return self.cache.differs(instance)
        return super().is_modified(instance, include_collections)


@event.listens_for(CachingSession, "before_flush")
def _before_flush(session: CachingSession, *_: Any) -> None:
    session.wrote = True
    if session.writer is not None:
        session.writer.before_flush()


@event.listens_for(CachingSession, "do_orm_execute")
def _before_execute(state: ORMExecuteState) -> None:
    session = cast(CachingSession, state.session)
    session.wrote = session.wrote or not state.is_select
    if session.cache is not None and state.is_select:
        asked = getattr(state.statement, "column_descriptions", ())
        if any(isinstance(each["expr"], type) and each["expr"] in session.cache for each in asked):
            raise TypeError("cached tables must not be queried with SELECT; use all_rows or rows_where")
    if session.writer is not None:
        session.writer.before_execute(writes=not state.is_select)


def all_rows(session: Session, kind: type[T]) -> list[T]:
    """All rows of a kind, from memory if cached; in no order."""
    found = _cache_with(session, kind)
    return list(session.scalars(mapping_of(kind).all_rows)) if found is None else found.all(kind)


def rows_where(session: Session, kind: type[T], attribute: str, *values: str) -> list[T]:
    """The rows whose `attribute` is one of these values. For a cached kind it must be the key or in
    `CachedTable.by`."""
    if (found := _cache_with(session, kind)) is not None:
        return found.where(kind, attribute, dict.fromkeys(values))
    return list(session.scalars(select(kind).where(getattr(kind, attribute).in_([*map(str, values)]))))


def _cache_with(session: Session, kind: type) -> TableCache | None:
    found = session.cache if isinstance(session, CachingSession) else None
    return found if found is not None and kind in found else None
