"""How a service remembers: rows with a version, and a journal of every change for those who watch.

A resource is a row mapped on a `ResourceRow`. Whatever a transaction adds, changes or deletes is written to the
`changes` journal in the same commit, with the view of the resource as it then was and a number (`rv`) that only grows,
also across restarts. The number is the resource's version: its etag, and the point from which a watch continues.
Journal and row can not disagree, because nobody writes the journal by hand.

Transactions are short and synchronous on purpose: load, decide and save happen without another request in between, so
a decision is always made on what it changes (docs/decisions/0003-synchronous-stores.md). Verbs that wait at the same
moment are decided one after the other and committed together
(`groups`, docs/decisions/0217-concurrent-verbs-share-one-commit.md).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, Iterator, Sized
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar, cast

from sqlalchemy import MetaData, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.persistence.change_log import Change, ChangeLog, OwnChanges, journal_tables
from matrixcommon.persistence.reads import looking
from matrixcommon.persistence.resource_row import ABSENT, ResourceRow, check_etag, find
from matrixcommon.persistence.table_cache import CachedTable, CachingSession, TableCache
from matrixcommon.persistence.transaction import Follow, GroupTransaction

T = TypeVar("T")

REMEMBERED_MAX, REMEMBERED_LENGTH_MAX = 64, 200
"""How many answers are remembered, and how long one may be: long ones are asked for seldom, and would fill memory."""
LOOK_PERIOD_WALL_S = 0.25
"""How often it is looked, while somebody waits for changes, whether another replica committed some."""

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


class Database:
    """A service's transactions and its journal. One per database and process.

    `sessions` makes the sessions. `group_transaction()` is the one place that commits. `shared`: other replicas of the
    service write into it too.
    """

    def __init__(
        self, sessions: Callable[[], CachingSession], metadata: MetaData, clock: Clock, shared: bool = False
    ) -> None:
        self._sessions = sessions
        self.shared = shared
        self._look_period_wall_s = LOOK_PERIOD_WALL_S if shared else math.inf
        self._metadata = metadata
        self._journal = ChangeLog(sessions, metadata)
        self._own = OwnChanges()
        self._clock = clock
        self._waiters: dict[asyncio.Future[None], None] = {}
        # Not a set: they are woken in the order in which they came, so that one seed has one history.
        self.executor: Executor | None = None
        """Where long searches run; None: in threads of the event loop's own."""
        self._look = -math.inf, 0
        self._keeps: dict[type, CachedTable] = {}
        self._warm: tuple[TableCache, int] | None = None
        """What is kept, and the newest change that it has in it."""
        self._nothing: dict[Callable[..., Any], int] = {}
        """By what was asked of rows, the number of the newest change when there were none."""
        self._remembered: dict[Hashable, tuple[int, Any]] = {}
        """By what was asked of rows, the answer, with the number of the newest change before it."""
        self._group: GroupTransaction | None = None
        self.before_commit: list[Follow] = []
        """Called for every verb that changed resources, with the rows and the number of its newest change; what it
        changed is not committed yet."""
        self.after_commit: list[Callable[[int], None]] = []
        """Called with the number of the newest change once that is committed."""
        self.at_end: list[Callable[[bool], None]] = []
        """Called at the end of every transaction or group of them: whether what was decided in it is so now. Must not
        raise."""

    @property
    def metadata(self) -> MetaData:
        return self._metadata

    def keep(self, *keeps: CachedTable) -> None:
        """Keep these tables in memory from one transaction to the next. From now on every transaction holds the
        journal's lock from its start: what it knows stays so until it ends, whatever other replicas want meanwhile."""
        self._keeps |= {each.kind: each for each in keeps}
        self._warm = None

    @contextmanager
    def transaction(self, dry: bool = False) -> Iterator[CachingSession]:
        """One verb: a session whose changes are journalled and committed; an exception undoes everything.

        Inside `together()` it is one of several. A `dry` one does all of it but the commit: `validateOnly`.
        """
        if dry:
            if self._group is not None:
                raise RuntimeError("what is only tried is no part of a group")
            with self._dry() as session:
                yield session
        elif self._group is not None:
            with self._group.unit() as session:
                yield session
        else:
            with self.group_transaction() as group, group.unit() as session:
                yield session

    @contextmanager
    def group_transaction(self) -> Iterator[GroupTransaction]:
        """Transactions in here are verbs of one group: decided one after the other, committed all at once.

        Whatever is raised before `committed` undoes all of them.
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
                if self._keeps and group.untouched:  # a refusal: what is kept is as good as it was
                    group.undo()
                    with suppress(SQLAlchemyError):
                        self._commit(group)
                raise
            wrote = group.write()
            self._commit(group)
        finally:
            self._group = None
            if group.committing and not group.committed:
                session.invalidate()  # it may still be in its transaction, and is not handed to anybody else
                self._own = OwnChanges()  # it may be committed all the same: the journal is looked at again
            session.close()
            if not group.committed:
                group.undo()
            for ended in self.at_end:
                ended(group.committed)
        if wrote:
            for done in self.after_commit:
                done(group.newest)
        for reported in group.done:
            reported()
        if wrote:
            self._wake()

    def dry_run(self, verb: Callable[[], T]) -> T:
        """What a verb of transactions would return; all that it did is undone, in the tables and in memory."""
        answer: list[T] = []
        with suppress(_OnlyTried), self.group_transaction():
            answer.append(verb())
            raise _OnlyTried
        return answer[0]

    def on_commit(self, action: Callable[[], None]) -> None:
        """Do this when what has been decided so far is committed: at once, outside of a group."""
        if self._group is None:
            action()
        else:
            self._group.done.append(action)

    def on_rollback(self, undo: Callable[[], None]) -> None:
        """Do this should the verb under way, or the group that it is in, come to nothing: memory that is no copy of a
        table is put back so."""
        if self._group is not None:
            self._group.undone.append(undo)

    @property
    def deciding(self) -> bool:
        """Whether a transaction or group is under way: what it has decided may never be committed."""
        return self._group is not None

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for looking at what is committed: whatever it changed is thrown away."""
        with looking(self._sessions) as session:
            yield session

    def lock(self, session: Session) -> int:
        """The number of the newest change, held until the transaction ends."""
        return self._journal.lock(session)

    # ---- sessions

    @contextmanager
    def _dry(self) -> Iterator[CachingSession]:
        with self._sessions() as session:
            if self._keeps:
                session.info["newest"] = self._journal.lock(session)
            event.listen(session, "transient_to_pending", self._date)
            yield session
            session.flush()
            session.rollback()

    def _date(self, session: Session, row: object) -> None:
        """What is only tried gets no entry in the journal, which dates a row: its view shows it as of now."""
        if isinstance(row, ResourceRow) and not row.created_at:
            row.created_at = row.updated_at = self._clock.now()

    def _begin(self, group: GroupTransaction) -> None:
        """With what is kept as it is now; where others write too, with what is read staying so until the end."""
        if self.shared:
            group.lock()
        if self._keeps:
            group.session.info["newest"] = newest = group.lock()
            cache, known = self._warm or (None, None)
            self._warm = None
            group.session.cache = cache if known == newest else TableCache(self._keeps.values(), group.session)

    def _commit(self, group: GroupTransaction) -> None:
        group.committing = True
        group.session.commit()
        group.committed = True
        if group.session.cache is not None:
            self._warm = group.session.cache, group.newest
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

    def found(self, kind: type[ResourceRow], ask: Callable[[Session], list[T]]) -> list[T]:
        """What is asked of the rows of one kind, in a session of its own. Where that was nothing, it is not asked again
        before one of them changes; where others write too, before anything does.

        `ask`: a function that compares equal the next time, and that answers by rows of that kind alone, whatever the
        time.
        """
        asked = self._asked_since(kind, self._nothing.get(ask), ask)
        if asked is None:
            return []
        newest, answer = asked
        if not answer:
            self._nothing[ask] = newest
        return answer

    def remembered(self, kind: type[ResourceRow], asked: Hashable, ask: Callable[[Session], T]) -> T:
        """What is asked of the rows of one kind, in a session of its own, and not again before one of them changes, or
        where others write too anything does: for what is asked every other second. The answer is everybody's, so nobody
        may change it.

        `asked`: what is asked, by which the answer is found again. `ask` answers by rows of that kind alone, whatever
        the time.
        """
        known = self._remembered.pop((kind, asked), None)
        now = self._asked_since(kind, None if known is None else known[0], ask) or known
        assert now is not None
        _, answer = now
        if isinstance(answer, Sized) and len(answer) > REMEMBERED_LENGTH_MAX:
            return cast(T, answer)
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[kind, asked] = now  # now the last to be forgotten
        return cast(T, answer)

    def _asked_since(
        self, kind: type[ResourceRow], known_at: int | None, ask: Callable[[Session], T]
    ) -> tuple[int, T] | None:
        """The answer, with the number of the newest change before it; None where the one that is known as of the change
        `known_at` is sure to be the answer still. Of what others write the number alone tells, and not the kind."""
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
        """Changes of a kind after `rv`, oldest first. Raises Gone where the journal no longer reaches back that far, or
        has not come so far."""
        return self.read_changes(kind, rv, limit)[0]

    def read_changes(self, kind: str, rv: int, limit: int = 500) -> tuple[list[Change], int]:
        """The same, and the newest number of any kind: where nothing is found, there is nothing up to that."""
        if self.shared:
            return self._journal.since(kind, rv, limit)
        if (known := self._own.none_since(kind, rv)) is not None:
            return [], known
        found, newest = self._journal.since(kind, rv, limit)
        self._own.begin(newest)
        return found, newest

    @property
    def clock(self) -> Clock:
        """By which its changes are dated."""
        return self._clock

    async def changed(self, within_wall_s: float, since: int | None = None) -> None:
        """Return at a commit that changed anything since the change of that number (the newest), or after that long: at
        once at one of our own, within `LOOK_PERIOD_WALL_S` at another replica's."""
        loop = asyncio.get_running_loop()
        since, end = self.latest() if since is None else since, loop.time() + within_wall_s
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = None
        try:
            while not waiter.done() and (left_s := end - loop.time()) > 1e-3:  # what is less, a loop may round away
                # Not wait_for: before Python 3.12 it can swallow a cancellation, and the watch would outlive its
                # service.
                await asyncio.wait({waiter}, timeout=min(left_s, self._look_period_wall_s))
                if self.shared and not waiter.done() and self._looked(loop.time()) > since:
                    return
        finally:
            del self._waiters[waiter]

    def _looked(self, now: float) -> int:
        """The newest change as of a moment ago: however many watch, the database is asked once a period. `now` is the
        loop's."""
        at, newest = self._look
        if not 0 <= now - at < LOOK_PERIOD_WALL_S / 2:
            self._look = now, newest = now, self.latest()
        return newest

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def compact(self, keep_s: float) -> int:
        """Forget changes older than `keep_s` emulated seconds; returns how many."""
        return self._journal.compact(self._clock.now() - keep_s)


class Store:
    """A service's tables, asked in the words of the domain. Every method works inside the caller's transaction."""

    def __init__(self, records: Database) -> None:
        self.records = records

    def transaction(self, dry: bool = False) -> AbstractContextManager[Session]:
        return self.records.transaction(dry)

    def reading(self) -> AbstractContextManager[Session]:
        return self.records.reading()


class _OnlyTried(Exception):
    """Ends a group that is not to be committed."""
