"""Database: a service's transactions over versioned rows, and a journal of every change for watches.

A resource is a row mapped on a `ResourceRow`. Whatever a transaction adds, changes or deletes is written to the
`changes` journal in the same commit, with the view of the resource at that point and a number (`rv`) that only
increases, also across restarts. The number is the resource's version: its etag, and the point from which a watch
continues. Journal and rows cannot disagree, because only this module writes the journal.

Transactions are short and synchronous on purpose: load, decide and save happen without another request in between, so a
decision always sees the state that it changes (docs/decisions/0003-synchronous-stores.md). Verbs that wait at the same
moment are decided one after another and committed together
(`group_commit`, docs/decisions/0217-concurrent-verbs-share-one-commit.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Iterator, Sized
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

from sqlalchemy import MetaData, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.persistence.change_log import Change, ChangeLog, OwnChanges, journal_tables
from matrixcommon.persistence.reads import read_only_session
from matrixcommon.persistence.resource_row import ABSENT, ResourceRow, check_etag, find
from matrixcommon.persistence.table_cache import CachedTable, CachingSession, TableCache
from matrixcommon.persistence.transaction import CommitHook, GroupTransaction
from matrixcommon.persistence.write_health import WriteHealth

T = TypeVar("T")
W = TypeVar("W", bound="SharedByWatches")

CACHED_RESULTS_MAX, CACHED_RESULT_LENGTH_MAX = 64, 200
"""How many answers are cached, and their maximum length: long ones are rarely asked for and would fill memory."""
POLL_PERIOD_WALL_S = 0.25
"""How often the database is polled for other replicas' commits while somebody waits for changes."""

__all__ = [
    "ABSENT",
    "Change",
    "CachedTable",
    "Database",
    "ResourceRow",
    "Store",
    "check_etag",
    "find",
    "journal_tables",
]


class SharedByWatches(Protocol):
    """What watches of the same thing share."""

    def notify(self) -> None:
        """Something was committed."""


class Database:
    """A service's transactions and its journal. One per database and process.

    `sessions` creates sessions. `group_transaction()` is the only place that commits. `shared`: other replicas of the
    service also write to the database.
    """

    def __init__(
        self, sessions: Callable[[], CachingSession], metadata: MetaData, clock: Clock, shared: bool = False
    ) -> None:
        self._sessions = sessions
        self.shared = shared
        self.poll_period_wall_s = POLL_PERIOD_WALL_S if shared else math.inf
        self._metadata = metadata
        self._journal = ChangeLog(sessions, metadata)
        self._own = OwnChanges()
        self._clock = clock
        self.write_health = WriteHealth(self._journal.probe_write)
        self._waiters: dict[asyncio.Future[None], None] = {}
        # Not a set: they are woken in order of arrival, so that a seed always gives the same history.
        self._watched: WeakValueDictionary[Hashable, SharedByWatches] = WeakValueDictionary()
        self.executor: Executor | None = None
        """Where long searches run; None: in the event loop's default executor."""
        self._look = -math.inf, 0
        self._cached_tables: dict[type, CachedTable] = {}
        self._warm_cache: tuple[TableCache, int] | None = None
        """The cached tables, and the number of the newest change in them."""
        self._known_empty: dict[Callable[..., Any], int] = {}
        """By query of `query_unless_known_empty`, the number of the newest change when it last returned nothing."""
        self._cached_results: dict[Hashable, tuple[int, Any]] = {}
        """By query of `cached_query`, the number of the newest change before the answer, and the answer."""
        self._group: GroupTransaction | None = None
        self.before_commit: list[CommitHook] = []
        """Called for every verb that changed resources, before the commit, with the rows and the number of its newest
        change."""
        self.after_commit: list[Callable[[int], None]] = []
        """Called after a commit with the number of its newest change."""
        self.after_transaction: list[Callable[[bool], None]] = []
        """Called at the end of every transaction or group with whether it was committed. Must not raise."""

    @property
    def metadata(self) -> MetaData:
        return self._metadata

    def cache_tables(self, *tables: CachedTable) -> None:
        """Cache these tables in memory across transactions. From now on every transaction takes the journal's lock at
        its start, so that other replicas cannot change what it has cached before it ends."""
        self._cached_tables |= {each.kind: each for each in tables}
        self._warm_cache = None

    @contextmanager
    def transaction(self, dry: bool = False) -> Iterator[CachingSession]:
        """One verb: a session whose changes are journalled and committed; an exception rolls everything back.

        Inside `group_transaction()` it is one of several. A `dry` one does everything but the commit: `validateOnly`.
        """
        if dry:
            if self._group is not None:
                raise RuntimeError("a dry transaction cannot be part of a group")
            with self._dry_run_session() as session:
                yield session
        elif self._group is not None:
            with self._group.unit() as session:
                yield session
        else:
            with self.group_transaction() as group, group.unit() as session:
                yield session

    @contextmanager
    def group_transaction(self) -> Iterator[GroupTransaction]:
        """Make the transactions inside this context verbs of one group: decided one after another, committed together.

        Any exception before the commit rolls all of them back.
        """
        if self._group is not None:
            raise RuntimeError("a group cannot be part of another")
        session = self._sessions()
        group = self._group = GroupTransaction(session, self._journal, self._clock.now(), self.before_commit)
        try:
            self._begin(group)
            try:
                yield group
            except BaseException:
                if self._cached_tables and group.is_unchanged:  # a refusal: the cached tables are still valid
                    group.undo()
                    with suppress(SQLAlchemyError):
                        self._commit(group)
                raise
            wrote = group.write()
            self._commit(group)
            if wrote or session.wrote:
                self.write_health.accepted()
        except DBAPIError as refusal:
            self.write_health.refused(refusal)
            raise
        finally:
            self._group = None
            if group.committing and not group.committed:
                session.invalidate()  # the connection may still be in its transaction and must not be reused
                self._own = OwnChanges()  # the commit may have succeeded all the same: read the journal again
            session.close()
            if not group.committed:
                group.undo()
            for ended in self.after_transaction:
                ended(group.committed)
        if wrote:
            for done in self.after_commit:
                done(group.newest)
        for reported in group.done:
            reported()
        if wrote:
            self._wake()

    def dry_run(self, verb: Callable[[], T]) -> T:
        """Return what a verb of transactions would return, and undo what it did, in the tables and in memory."""
        answer: list[T] = []
        with suppress(_DryRunDone), self.group_transaction():
            answer.append(verb())
            raise _DryRunDone
        return answer[0]

    def on_commit(self, action: Callable[[], None]) -> None:
        """Run an action once everything decided so far is committed; immediately if no group is in progress."""
        if self._group is None:
            action()
        else:
            self._group.done.append(action)

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Run `undo` if the current verb or its group is rolled back: to restore memory that is not a copy of a
        table."""
        if self._group is not None:
            self._group.undone.append(undo)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction or group is in progress, whose decisions may never be committed."""
        return self._group is not None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for reading committed state; any changes are discarded."""
        with read_only_session(self._sessions) as session:
            yield session

    def lock(self, session: Session) -> int:
        """Return the number of the newest change and lock it until the transaction ends."""
        return self._journal.lock(session)

    # ---- sessions

    @contextmanager
    def _dry_run_session(self) -> Iterator[CachingSession]:
        with self._sessions() as session:
            if self._cached_tables:
                session.info["newest"] = self._journal.lock(session)
            event.listen(session, "transient_to_pending", self._date)
            yield session
            session.flush()
            session.rollback()

    def _date(self, session: Session, row: object) -> None:
        """Date a new row of a dry run, which gets no journal entry that would date it, so that its view shows now."""
        if isinstance(row, ResourceRow) and not row.created_at:
            row.created_at = row.updated_at = self._clock.now()

    def _begin(self, group: GroupTransaction) -> None:
        """Give the group up-to-date cached tables. If other replicas write too, lock the journal, so that what it reads
        does not change until it ends."""
        if self.shared:
            group.lock()
        if self._cached_tables:
            group.session.info["newest"] = newest = group.lock()
            cache, known = self._warm_cache or (None, None)
            self._warm_cache = None
            group.session.cache = cache if known == newest else TableCache(self._cached_tables.values(), group.session)

    def _commit(self, group: GroupTransaction) -> None:
        group.committing = True
        group.session.commit()
        group.committed = True
        if group.session.cache is not None:
            self._warm_cache = group.session.cache, group.newest
        if group.before is not None and group.newest > group.before:
            self._own.record(group.before, group.newest, group.entries)

    # ---- watching

    def latest(self) -> int:
        """The number of the newest change."""
        if self.shared:
            return self._journal.latest()
        if (known := self._own.latest) is None:
            self._own.begin(known := self._journal.latest())
        return known

    def query_unless_known_empty(self, kind: type[ResourceRow], ask: Callable[[Session], list[T]]) -> list[T]:
        """Run a query over rows of one kind in its own session. After an empty result the query is not repeated until a
        row of that kind changes or, if other replicas write too, until anything changes.

        `ask` must compare equal from call to call, and its answer may depend only on rows of that kind, not on time.
        """
        asked = self._query_if_changed(kind, self._known_empty.get(ask), ask)
        if asked is None:
            return []
        newest, answer = asked
        if not answer:
            self._known_empty[ask] = newest
        return answer

    def cached_query(self, kind: type[ResourceRow], asked: Hashable, ask: Callable[[Session], T]) -> T:
        """Run a query over rows of one kind in its own session and cache the answer until a row of that kind changes
        or, if other replicas write too, until anything changes. For queries that are repeated every few seconds. The
        answer is shared, so do not mutate it.

        `asked` is the cache key. The answer of `ask` may depend only on rows of that kind, not on time.
        """
        known = self._cached_results.pop((kind, asked), None)
        now = self._query_if_changed(kind, None if known is None else known[0], ask) or known
        assert now is not None
        _, answer = now
        if isinstance(answer, Sized) and len(answer) > CACHED_RESULT_LENGTH_MAX:
            return cast(T, answer)
        if len(self._cached_results) >= CACHED_RESULTS_MAX:
            del self._cached_results[next(iter(self._cached_results))]
        self._cached_results[kind, asked] = now  # now the last to be evicted
        return cast(T, answer)

    def _query_if_changed(
        self, kind: type[ResourceRow], known_at: int | None, ask: Callable[[Session], T]
    ) -> tuple[int, T] | None:
        """The number of the newest change and the answer after it; None if the answer known as of change `known_at` is
        certain to be still valid. With other writers only the number is known, not the kinds that changed."""
        if self.shared:
            with self.reading() as session:
                newest = self._journal.head_rv(session)
                return None if newest == known_at else (newest, ask(session))
        if known_at is not None and self._own.none_since(kind.kind, known_at) is not None:
            return None
        newest = self.latest()
        with self.reading() as session:
            return newest, ask(session)

    def newest(self, session: Session) -> int:
        """The number of the newest change that a session sees."""
        return self._journal.newest(session)

    def changes_since(self, kind: str, rv: int, limit: int = 500) -> list[Change]:
        """Changes of a kind after `rv`, oldest first. Raises Gone if the journal no longer reaches back that far, or
        not yet up to `rv`."""
        return self.read_changes(kind, rv, limit)[0]

    def read_changes(self, kind: str, rv: int, limit: int = 500) -> tuple[list[Change], int]:
        """The same, and the newest number of any kind: if no changes are returned, there are none up to it."""
        if self.shared:
            return self._journal.since(kind, rv, limit)
        if (known := self._own.none_since(kind, rv)) is not None:
            return [], known
        found, newest = self._journal.since(kind, rv, limit)
        self._own.begin(newest)
        return found, newest

    def may_have_changed(self, kind: str | None, since: int) -> bool:
        """Whether it is not certain that nothing of a kind, or of any, was committed after change number `since`. Other
        replicas' commits are known within `POLL_PERIOD_WALL_S`."""
        if self.shared:
            return self._polled_latest(asyncio.get_running_loop().time()) > since
        return self.latest() > since if kind is None else self._own.none_since(kind, since) is None

    def shared_by_watches(self, key: Hashable, create: Callable[[], W]) -> W:
        """What the watches of one thing share, created for the first of them and dropped after the last."""
        shared = self._watched.get(key)
        if shared is None:
            shared = self._watched[key] = create()
        return cast(W, shared)

    @property
    def clock(self) -> Clock:
        """The clock by which changes are dated."""
        return self._clock

    async def changed(self, within_wall_s: float, since: int | None = None) -> None:
        """Return when a commit has changed anything after change number `since` (default: the newest), or after
        `within_wall_s`. A commit of this process returns immediately, one of another replica within
        `POLL_PERIOD_WALL_S`."""
        loop = asyncio.get_running_loop()
        since, end = self.latest() if since is None else since, loop.time() + within_wall_s
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = None
        try:
            while not waiter.done() and (left_s := end - loop.time()) > 1e-3:  # the loop may round less down to 0
                # Not wait_for: before Python 3.12 it can swallow a cancellation, and the watch would outlive its
                # service.
                await asyncio.wait({waiter}, timeout=min(left_s, self.poll_period_wall_s))
                if self.shared and not waiter.done() and self._polled_latest(loop.time()) > since:
                    return
        finally:
            del self._waiters[waiter]

    def _polled_latest(self, now: float) -> int:
        """The newest change as of a moment ago: however many watch, the database is polled once per period. `now` is
        the loop's time."""
        at, newest = self._look
        if not 0 <= now - at < POLL_PERIOD_WALL_S / 2:
            self._look = now, newest = now, self.latest()
        return newest

    def _wake(self) -> None:
        self._look = -math.inf, 0
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for shared in [*self._watched.values()]:
            shared.notify()

    def compact(self, keep_s: float) -> int:
        """Delete changes older than `keep_s` emulated seconds from the journal and return how many."""
        return self._journal.compact(self._clock.now() - keep_s)


class Store:
    """Base of services' stores: queries on their tables in domain terms. Every method works inside the caller's
    transaction."""

    def __init__(self, records: Database) -> None:
        self.records = records

    def transaction(self, dry: bool = False) -> AbstractContextManager[Session]:
        return self.records.transaction(dry)

    def reading(self) -> AbstractContextManager[Session]:
        return self.records.reading()


class _DryRunDone(Exception):
    """Ends the group of a dry run."""
