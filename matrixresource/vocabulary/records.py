"""How a service remembers: rows with a version, and a journal of every change for those who watch.

A resource is a row mapped on a `ResourceRow`. Whatever a transaction adds, changes or deletes is written to the
`changes` journal in the same commit, with the view of the resource as it then was and a number (`rv`) that only grows,
also across restarts. The number is the resource's version: its etag, and the point from which a watch goes on. Journal
and row can not disagree, because nobody writes the journal by hand.

Transactions are short and synchronous on purpose: load, decide and save happen without another request in between, so
a decision is always made on what it changes (docs/decisions/0003-synchronous-stores.md).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    event,
    func,
    select,
    text,
)
from sqlalchemy import update as sql_update
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import Gone, NotFound, PreconditionFailed
from matrixresource.vocabulary.quantities import timestamp
from matrixresource.vocabulary.wire import View

R = TypeVar("R", bound="ResourceRow")


class ResourceRow:
    """Columns every resource has. A subclass names its `kind` and builds its own view in `view()`.

    `generation` counts wishes (what the caller asked), `version` counts every change; `created_at` and `updated_at` are
    emulated seconds since the epoch, kept by the journal.
    """

    kind: str = "resource"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    project: Mapped[str] = mapped_column(String(63), default="default")
    labels: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    generation: Mapped[int] = mapped_column(Integer, default=1)
    version: Mapped[int] = mapped_column(BigInteger, default=0)
    state: Mapped[str] = mapped_column(String(40), default="")
    conditions: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    created_at: Mapped[float] = mapped_column(Float, default=0.0)
    updated_at: Mapped[float] = mapped_column(Float, default=0.0)

    def view(self) -> View:
        raise NotImplementedError

    @property
    def etag(self) -> str:
        return f'"{self.version}"'

    def common(self) -> dict[str, Any]:
        """What every view shows, for the subclass's view to add to."""
        return {
            "name": self.name,
            "project": self.project or "default",
            "labels": self.labels or {},
            "generation": self.generation if self.generation is not None else 1,
            "etag": self.etag,
            "state": self.state or "",
            "conditions": self.conditions or [],
            "created_at": timestamp(self.created_at or 0.0),
            "updated_at": timestamp(self.updated_at or 0.0),
        }


def journal_tables(metadata: MetaData) -> tuple[Table, Table]:
    """The journal's two tables, in a service's own metadata: `changes` and the one row of `journal_head`."""
    changes = Table(
        "changes",
        metadata,
        Column("rv", BigInteger, primary_key=True, autoincrement=False),
        Column("kind", String(40), nullable=False, index=True),
        Column("name", String(253), nullable=False),
        Column("type", String(10), nullable=False),
        Column("at", Float, nullable=False),
        Column("body", Text, nullable=False),
    )
    head = Table(
        "journal_head",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("rv", BigInteger, nullable=False),
        Column("floor", BigInteger, nullable=False),
    )
    return changes, head


@dataclass(frozen=True)
class Change:
    """One entry of the journal: ADDED, MODIFIED or DELETED, with the view as JSON text."""

    rv: int
    kind: str
    name: str
    type: str
    body: str


class Records:
    """A service's transactions and its journal. One per database and process.

    `sessions` makes SQLAlchemy sessions. `transaction()` is the one place that commits.
    """

    def __init__(self, sessions: Callable[[], Session], metadata: MetaData, clock: Clock) -> None:
        self._sessions = sessions
        self._changes = metadata.tables["changes"]
        self._head = metadata.tables["journal_head"]
        self._clock = clock
        self._waiters: set[asyncio.Future[None]] = set()
        self.before_commit: list[Callable[[Session, Sequence[ResourceRow], int], None]] = []
        """Called in every transaction that changed resources, with the rows and the number of the newest change."""
        self.after_commit: list[Callable[[int], None]] = []
        """Called with that number once it is committed."""

    @contextmanager
    def transaction(self, dry: bool = False) -> Iterator[Session]:
        """A session that commits at the end, journalling what changed; an exception undoes everything.

        A `dry` one does all of it but the commit: `validateOnly`.
        """
        with self._sessions() as session:
            touched: dict[int, tuple[ResourceRow, str]] = {}
            event.listen(session, "before_flush", lambda s, _context, _objects: _gather(s, touched))
            yield session
            session.flush()
            if dry:
                session.rollback()
                return
            newest = self._write_journal(session, touched)
            if touched:
                for follow in self.before_commit:
                    follow(session, [row for row, _ in touched.values()], newest)
            session.commit()
        if touched:
            for done in self.after_commit:
                done(newest)
            self._wake()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for looking: whatever it changed is thrown away."""
        with self._sessions() as session:
            yield session
            session.rollback()

    def lock(self, session: Session) -> int:
        """The number of the newest change, held until the transaction ends: nobody else commits a change meanwhile.

        On SQLite nobody else writes; on PostgreSQL the other replicas wait.
        """
        newest = select(self._head.c.rv).where(self._head.c.id == 1).with_for_update()
        held = session.execute(newest).scalar_one_or_none()
        if held is None:  # nobody has changed anything yet: there must be something to hold
            first = f"INSERT INTO {self._head.name} (id, rv, floor) VALUES (1, 0, 0) ON CONFLICT DO NOTHING"
            session.execute(text(first))
            held = session.execute(newest).scalar_one()
        return int(held)

    def _write_journal(self, session: Session, touched: dict[int, tuple[ResourceRow, str]]) -> int:
        """Returns the number of the newest change."""
        if not touched:
            return 0
        changed = list(touched.values())
        rv = self._take_numbers(session, len(changed)) - len(changed)
        now = self._clock.now()
        entries = []
        for row, type in changed:
            rv += 1
            row.version = rv
            row.updated_at = now
            if type == "ADDED":
                row.created_at = now
            entries.append(
                {
                    "rv": rv,
                    "kind": row.kind,
                    "name": row.name,
                    "type": type,
                    "at": now,
                    "body": json.dumps(row.view().wire()),
                }
            )
        session.execute(self._changes.insert(), entries)
        return rv

    def _take_numbers(self, session: Session, count: int) -> int:
        taken = session.execute(
            sql_update(self._head)
            .where(self._head.c.id == 1)
            .values(rv=self._head.c.rv + count)
            .returning(self._head.c.rv)
        ).scalar_one_or_none()
        if taken is None:
            session.execute(self._head.insert(), {"id": 1, "rv": count, "floor": 0})
            return count
        return int(taken)

    # -- watching ------------------------------------------------------------------------------------------------

    def latest(self) -> int:
        """The number of the newest change."""
        with self._sessions() as session:
            return int(session.execute(select(self._head.c.rv)).scalar_one_or_none() or 0)

    def changes_since(self, kind: str, rv: int, limit: int = 500) -> list[Change]:
        """Changes of a kind after `rv`, oldest first. Raises Gone where the journal no longer reaches back that far."""
        with self._sessions() as session:
            floor = int(session.execute(select(self._head.c.floor)).scalar_one_or_none() or 0)
            if rv < floor:
                raise Gone(f"the journal starts after {floor}; {rv} is too old: list again and watch from there")
            found = session.execute(
                select(self._changes)
                .where(self._changes.c.kind == kind, self._changes.c.rv > rv)
                .order_by(self._changes.c.rv)
                .limit(limit)
            )
            return [Change(each.rv, each.kind, each.name, each.type, each.body) for each in found]

    async def changed(self, within_wall_s: float) -> None:
        """Return at the next commit that changed anything, or after that long."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            # Not wait_for: before Python 3.12 it can swallow a cancellation, and the watch would outlive its service.
            await asyncio.wait({waiter}, timeout=within_wall_s)
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def compact(self, keep_s: float) -> int:
        """Forget changes older than `keep_s` emulated seconds; returns how many."""
        with self._sessions() as session:
            floor = session.execute(
                select(func.max(self._changes.c.rv)).where(self._changes.c.at < self._clock.now() - keep_s)
            ).scalar_one_or_none()
            if floor is None:
                return 0
            gone = cast(Any, session.execute(delete(self._changes).where(self._changes.c.rv <= floor)))
            session.execute(sql_update(self._head).where(self._head.c.id == 1).values(floor=floor))
            session.commit()
            return int(gone.rowcount)


def _gather(session: Session, touched: dict[int, tuple[ResourceRow, str]]) -> None:
    for row in session.new:
        if isinstance(row, ResourceRow):
            touched[id(row)] = (row, "ADDED")
    for row in session.dirty:
        if isinstance(row, ResourceRow) and id(row) not in touched and session.is_modified(row):
            touched[id(row)] = (row, "MODIFIED")
    for row in session.deleted:
        if isinstance(row, ResourceRow):
            touched[id(row)] = (row, "DELETED")


def find(session: Session, kind: type[R], name: str) -> R:
    """The row of that name, else NotFound."""
    row = session.get(kind, name)
    if row is None:
        raise NotFound(f"there is no {kind.kind} named {name!r}", field="name")
    return row


def check_etag(row: ResourceRow | None, if_match: str | None) -> None:
    """PreconditionFailed unless `If-Match` (a list of etags, or `*` for any that exists) covers the row's version."""
    if if_match is None:
        return
    wanted = {tag.strip().removeprefix("W/") for tag in if_match.split(",")}
    if row is None or ("*" not in wanted and row.etag not in wanted and f"{row.version}" not in wanted):
        held = "no such resource" if row is None else f"version {row.etag}"
        raise PreconditionFailed(f"If-Match asks for {if_match}, there is {held}", field="If-Match")
