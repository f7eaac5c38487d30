"""Units: the verbs of one transaction, each of which happens whole or not at all.

At the end of a unit what it changed is numbered, shown and noted for the journal, as if it had been committed by
itself; the unit after it decides on that. Rows of cached tables are written when the group is, others at once. A unit
that is refused before it changed anything leaves the group as it was; one that fails later breaks it, and all of it is
undone by being thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy.orm import Session

from matrixcommon.persistence.bulk_writes import PendingWrites
from matrixcommon.persistence.change_log import ChangeLog
from matrixcommon.persistence.resource_row import ResourceRow
from matrixcommon.persistence.table_cache import CachingSession, TableCache, shape_of

K = TypeVar("K")
V = TypeVar("V")

Touched = dict[Any, str]
"""Rows by what became of them: ADDED, MODIFIED, DELETED."""

Follow = Callable[[Session, list[ResourceRow], int], None]


class TransactionAborted(RuntimeError):
    """A unit failed halfway: nothing of its group may be committed."""


def restore_entry(current: dict[K, V], key: K) -> Callable[[], None]:
    """How to undo what is done to one entry of a dictionary from now on."""
    had, before = key in current, current.get(key)

    def undo() -> None:
        if had:
            current[key] = cast(V, before)
        else:
            current.pop(key, None)

    return undo


class GroupTransaction:
    """The units of one transaction over `session`."""

    def __init__(self, session: CachingSession, journal: ChangeLog, now: float, follow: list[Follow]) -> None:
        self.session = session
        self.broken = self.committing = self.committed = False
        self.done: list[Callable[[], None]] = []
        """What to do once all of it is committed."""
        self.undone: list[Callable[[], None]] = []
        """What to do, the last first, should it come to nothing."""
        self.before: int | None = None
        """The number of the newest change before this group, once its lock is held."""
        self.newest = 0
        self._journal = journal
        self._now = now
        self._follow = follow
        self._writes = PendingWrites()
        self.entries: list[dict[str, Any]] = []
        """Of the journal: what changed, in order."""
        self._touched: Touched = {}
        self._otherwise = False
        """Whether the unit under way has written by statements."""
        self._wrote = False
        """Whether a unit before it has written anything, be it rows that have no number."""
        session.writer = self

    @property
    def _cache(self) -> TableCache | None:
        return self.session.cache

    def lock(self) -> int:
        """Be the only one who changes anything, until the transaction ends; the number of the newest change."""
        if self.before is None:
            self.before = self.newest = self._journal.lock(self.session)
        return self.newest

    @property
    def untouched(self) -> bool:
        """Whether nothing has been changed so far."""
        return not (self.broken or self._wrote or self._otherwise)

    @contextmanager
    def unit(self) -> Iterator[CachingSession]:
        """One verb. Raises TransactionAborted where an earlier one failed halfway."""
        if self.broken:
            raise TransactionAborted("an earlier verb of this group failed halfway")
        self.session.info["unit"] = object()  # so that whoever remembers something of a verb knows it from the next
        done, undone = len(self.done), len(self.undone)
        try:
            yield self.session
        except BaseException:
            self.broken = True
            del self.done[done:]
            self.undo(undone)
            self._gather()
            self.broken = bool(self._touched) or self._otherwise
            raise
        self.broken = True
        self._end_unit()
        self.broken = False

    def undo(self, first: int = 0) -> None:
        """Undo in memory what was to be undone, but for the `first` of it."""
        while len(self.undone) > first:
            self.undone.pop()()

    def flushing(self) -> None:
        """The session is about to write: what is in memory alone comes before that."""
        self._gather()
        self._note()
        self._write_rows()

    def asking(self, *, writes: bool) -> None:
        """The session is about to execute a statement: what is in memory alone comes before that."""
        self._otherwise |= writes
        if self.session.autoflush:
            self._gather()
            self._note()
        self._write_rows()

    def write(self) -> bool:
        """Everything into the database, ready to be committed. False where there was nothing to write."""
        if self.broken:
            raise TransactionAborted("a verb of this group failed halfway")
        if self.newest == (self.before or 0):
            return False
        self._journal.add_to(self._writes, self.newest, self.entries)
        self._write_rows()
        return True

    # ---- what a unit did

    def _write_rows(self) -> None:
        if self._writes:
            self._writes.carry_out(self.session.connection())

    def _gather(self) -> None:
        """Note what is about to be flushed, or what is about to end."""
        session, cache, touched = self.session, self._cache, self._touched
        deleted, new, changed = ([], [], []) if cache is None else cache.changes()
        touched |= dict.fromkeys([*session.deleted, *deleted], "DELETED")
        touched |= dict.fromkeys([*session.new, *new], "ADDED")
        changed += [row for row in session.dirty if session.is_modified(row)]
        for row in sorted(changed, key=_in_order):
            touched.setdefault(row, "MODIFIED")

    def _note(self) -> None:
        if self._cache is not None:
            self._cache.note(self._writes)

    def _end_unit(self) -> None:
        self._gather()
        touched, self._touched = self._touched, {}
        self._wrote |= bool(touched) or self._otherwise
        self._otherwise = False
        resources = [(row, type) for row, type in touched.items() if isinstance(row, ResourceRow)]
        cache = self._cache
        if resources or (cache is not None and any(type(row) in cache for row in touched)):
            self.lock()
            self._number(resources)
        self._note()
        self.session.flush()  # other rows are written at once
        self._touched = {}
        if resources:
            rows = [row for row, _ in resources]
            for follow in self._follow:
                follow(self.session, rows, self.newest)

    def _number(self, resources: list[tuple[ResourceRow, str]]) -> None:
        """A number and an entry of the journal for each."""
        for row, type in resources:
            self.newest += 1
            row.version = self.newest
            row.stamp(self._now)
            if type == "ADDED":
                row.created_at = self._now
            body = row.show().text()
            entry = {"rv": self.newest, "kind": row.kind, "name": row.name, "type": type, "at": self._now, "body": body}
            self.entries.append(entry)
        if not resources:
            self.newest += 1  # cached rows that nobody watches: whoever keeps them must hear that they changed
        self.session.info["newest"] = self.newest


def _in_order(row: Any) -> tuple[str, str]:
    """The same every time, so that a journal can be compared with another's."""
    return row.__class__.__name__, str(shape_of(row.__class__).key(row))
