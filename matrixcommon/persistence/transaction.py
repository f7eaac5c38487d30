"""Units: the verbs of one group transaction, each of which is atomic.

At the end of a unit its changes are numbered, rendered and added to the journal's entries as if it were committed by
itself, and the next unit sees them. Rows of cached tables are written with the group, others immediately. A unit that
is refused before it changed anything leaves the group as it was; one that fails later breaks the group, which is then
rolled back as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy.orm import Session

from matrixcommon.persistence.bulk_writes import PendingWrites
from matrixcommon.persistence.change_log import ChangeLog
from matrixcommon.persistence.resource_row import ResourceRow
from matrixcommon.persistence.table_cache import CachingSession, TableCache, mapping_of

K = TypeVar("K")
V = TypeVar("V")

RowChanges = dict[Any, str]
"""What happened to each row: ADDED, MODIFIED or DELETED."""

CommitHook = Callable[[Session, list[ResourceRow], int], None]


class TransactionAborted(RuntimeError):
    """A unit failed halfway, so its group must not be committed."""


def restore_entry(current: dict[K, V], key: K) -> Callable[[], None]:
    """Return a function that restores the present entry of a dictionary, or its absence."""
    had, before = key in current, current.get(key)

    def undo() -> None:
        if had:
            current[key] = cast(V, before)
        else:
            current.pop(key, None)

    return undo


class GroupTransaction:
    """The units of one transaction over `session`."""

    def __init__(self, session: CachingSession, journal: ChangeLog, now: float, follow: list[CommitHook]) -> None:
        self.session = session
        self.broken = self.committing = self.committed = False
        self.done: list[Callable[[], None]] = []
        """Actions to run after the commit."""
        self.undone: list[Callable[[], None]] = []
        """Actions to run on rollback, last first."""
        self.before: int | None = None
        """The number of the newest change before this group, once the lock is held."""
        self.newest = 0
        self._journal = journal
        self._now = now
        self._follow = follow
        self._writes = PendingWrites()
        self.entries: list[dict[str, Any]] = []
        """Journal entries, in order."""
        self._touched: RowChanges = {}
        self._wrote_by_statement = False
        """Whether the current unit has written with statements instead of through rows."""
        self._wrote_earlier = False
        """Whether an earlier unit has written anything, including rows without a number."""
        session.writer = self

    @property
    def _cache(self) -> TableCache | None:
        return self.session.cache

    def lock(self) -> int:
        """Become the only writer until the transaction ends, and return the number of the newest change."""
        if self.before is None:
            self.before = self.newest = self._journal.lock(self.session)
        return self.newest

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing was changed so far."""
        return not (self.broken or self._wrote_earlier or self._wrote_by_statement)

    @contextmanager
    def unit(self) -> Iterator[CachingSession]:
        """Run one verb. Raises TransactionAborted if an earlier one failed halfway."""
        if self.broken:
            raise TransactionAborted("an earlier verb of this group failed halfway")
        self.session.info["unit"] = object()  # identifies the verb to those who keep state for it
        done, undone = len(self.done), len(self.undone)
        try:
            yield self.session
        except BaseException:
            self.broken = True
            del self.done[done:]
            self.undo(undone)
            self._collect_changes()
            self.broken = bool(self._touched) or self._wrote_by_statement
            raise
        self.broken = True
        self._end_unit()
        self.broken = False

    def undo(self, first: int = 0) -> None:
        """Run the rollback actions, last first, except for the `first` ones."""
        while len(self.undone) > first:
            self.undone.pop()()

    def before_flush(self) -> None:
        """The session is about to flush: write first what is only in memory."""
        self._collect_changes()
        self._note()
        self._write_rows()

    def before_execute(self, *, writes: bool) -> None:
        """The session is about to execute a statement: write first what is only in memory."""
        self._wrote_by_statement |= writes
        if self.session.autoflush:
            self._collect_changes()
            self._note()
        self._write_rows()

    def write(self) -> bool:
        """Write everything to the database, ready for the commit. Return False if there was nothing to write."""
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
            self._writes.execute(self.session.connection())

    def _collect_changes(self) -> None:
        """Collect the rows that changed, before they are flushed or the unit ends."""
        session, cache, touched = self.session, self._cache, self._touched
        deleted, new, changed = ([], [], []) if cache is None else cache.changes()
        touched |= dict.fromkeys([*session.deleted, *deleted], "DELETED")
        touched |= dict.fromkeys([*session.new, *new], "ADDED")
        changed += [row for row in session.dirty if session.is_modified(row)]
        for row in sorted(changed, key=_sort_key):
            touched.setdefault(row, "MODIFIED")

    def _note(self) -> None:
        if self._cache is not None:
            self._cache.note(self._writes)

    def _end_unit(self) -> None:
        self._collect_changes()
        touched, self._touched = self._touched, {}
        self._wrote_earlier |= bool(touched) or self._wrote_by_statement
        self._wrote_by_statement = False
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
        """Give each resource a number and a journal entry."""
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
            self.newest += 1  # cached rows without watches: other replicas' caches must notice the change
        self.session.info["newest"] = self.newest


def _sort_key(row: Any) -> tuple[str, str]:
    """A deterministic sort key, so that journals can be compared."""
    return row.__class__.__name__, str(mapping_of(row.__class__).key(row))
