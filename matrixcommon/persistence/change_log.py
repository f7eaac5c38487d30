"""The journal: every change of a service's resources, numbered, in commit order.

The number (`rv`) of a change is the resource's version from then on, and the point from which a watch can continue.
Numbers only increase, also across restarts; `journal_head` has the newest. Every writer must hold the lock of that row,
so that there is one writer at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    text,
    true,
)
from sqlalchemy import update as sql_update
from sqlalchemy.orm import Session

from matrixcommon.model.errors import Gone
from matrixcommon.persistence.bulk_writes import PendingWrites, fetch_one
from matrixcommon.persistence.reads import read_only_session
from matrixcommon.persistence.table_cache import CachingSession


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

    @cached_property
    def view(self) -> dict[str, Any]:
        """The view, parsed once for all watches: do not change it."""
        view: dict[str, Any] = json.loads(self.body)
        return view

    @cached_property
    def rendered(self) -> dict[Any, Any]:
        """What watches made of it for their readers, so that others need not."""
        return {}


class OwnChanges:
    """The newest change of each kind among an unbroken series of commits by this process.

    Every commit wakes all watches. If this process is the only writer, those of kinds that did not change are answered
    from here, without a query.
    """

    def __init__(self) -> None:
        self._first, self._last = 0, -1
        self._newest: dict[str, int] = {}

    @property
    def latest(self) -> int | None:
        """The number of the newest change of any kind; None before the journal was first read."""
        return self._last if self._last >= 0 else None

    def begin(self, newest: int) -> None:
        """Record the journal's head as first read, unless something was recorded before."""
        if self._last < 0:
            self._first = self._last = newest

    def record(self, before: int, newest: int, entries: list[dict[str, Any]]) -> None:
        """Record a commit that took the journal from `before` to `newest`."""
        if before != self._last:
            self._first, self._newest = before, {}
        self._last = newest
        self._newest |= {entry["kind"]: entry["rv"] for entry in entries}

    def none_since(self, kind: str, rv: int) -> int | None:
        """The newest number of any kind if it is certain that nothing of this kind changed after `rv`, else None."""
        if self._first <= rv <= self._last and self._newest.get(kind, 0) <= rv:
            return self._last
        return None


class ChangeLog:
    """The journal of one service, in two tables."""

    def __init__(self, sessions: Callable[[], CachingSession], metadata: MetaData) -> None:
        self._sessions = sessions
        self.changes = metadata.tables["changes"]
        self.head = head = metadata.tables["journal_head"]
        self._newest = select(head.c.rv).where(head.c.id == 1)
        self._since = _changes_since(self.changes, head)

    def lock(self, session: Session) -> int:
        """Return the number of the newest change and lock it until the transaction ends: nobody else commits a change
        meanwhile.

        On SQLite there is no other writer; on PostgreSQL the other replicas wait.
        """
        connection = session.connection()
        locking = "" if connection.dialect.name == "sqlite" else " FOR UPDATE"
        ask = f"SELECT rv FROM {self.head.name} WHERE id = 1{locking}"
        if (found := fetch_one(connection, ask, ())) is None:  # no change yet: create the row to lock
            first = f"INSERT INTO {self.head.name} (id, rv, floor) VALUES (1, 0, 0) ON CONFLICT DO NOTHING"
            connection.execute(text(first))
            found = fetch_one(connection, ask, ())
        return int(found[0])

    def probe_write(self) -> None:
        """Commit a write that changes nothing. Raises DBAPIError if the database takes no writes."""
        with self._sessions() as session:
            session.execute(
                text(
                    f"INSERT INTO {self.head.name} (id, rv, floor) VALUES (1, 0, 0) "
                    f"ON CONFLICT (id) DO UPDATE SET rv = {self.head.name}.rv"
                )
            )
            session.commit()

    def add_to(self, writes: PendingWrites, newest: int, entries: list[dict[str, Any]]) -> None:
        """Add journal entries up to `newest` to the writes. The caller holds the lock."""
        writes.put(self.head, 1, {"rv": newest}, there=True)
        for entry in entries:
            writes.put(self.changes, entry["rv"], entry, there=False)

    def latest(self) -> int:
        """The number of the newest change."""
        with read_only_session(self._sessions) as session:
            return self.head_rv(session)

    def head_rv(self, session: Session) -> int:
        """The same as seen by a read-only session; directly through the driver, since replicas ask all the time."""
        found = fetch_one(session.connection(), f"SELECT rv FROM {self.head.name} WHERE id = 1", ())
        return 0 if found is None else int(found[0])

    def newest(self, session: Session) -> int:
        """The same as seen by a session."""
        return int(session.execute(self._newest).scalar_one_or_none() or 0)

    def since(self, kind: str, rv: int, limit: int) -> tuple[list[Change], int]:
        """Changes of a kind after `rv`, oldest first, and the newest number of any kind at that moment. Raises Gone if
        the journal no longer reaches back that far, or not yet up to `rv`, as after a database was restored."""
        with read_only_session(self._sessions) as session:
            found = session.execute(self._since, {"kind": kind, "after": rv, "most": limit}).all()
        newest, floor = (found[0].newest, found[0].floor) if found else (0, 0)
        if rv < floor:
            raise Gone(f"the journal starts after {floor}; {rv} is too old: list again and watch from there")
        if rv > newest:
            raise Gone(f"the journal ends at {newest}; {rv} is ahead of it: list again and watch from there")
        rows = [each for each in found if each.rv is not None]
        return [Change(each.rv, each.kind, each.name, each.type, each.body) for each in rows], newest

    def compact(self, before_s: float) -> int:
        """Delete changes from before a time (emulated seconds since the epoch) and return how many."""
        with self._sessions() as session:
            floor = session.execute(
                select(func.max(self.changes.c.rv)).where(self.changes.c.at < before_s)
            ).scalar_one_or_none()
            if floor is None:
                return 0
            gone = cast(Any, session.execute(delete(self.changes).where(self.changes.c.rv <= floor)))
            # Never lower the floor: another replica may meanwhile have compacted further.
            further = (self.head.c.id == 1, self.head.c.floor < floor)
            session.execute(sql_update(self.head).where(*further).values(floor=floor))
            session.commit()
            return int(gone.rowcount)


def _changes_since(changes: Table, head: Table) -> Select[Any]:
    """A query for the journal's head joined with up to `most` changes of a `kind` after a number; built once, since
    every watch runs it at every change. It is one statement and so one snapshot: between two, changes that others
    commit or compact would be missed silently."""
    page = (
        select(changes)
        .where(changes.c.kind == bindparam("kind"), changes.c.rv > bindparam("after"))
        .order_by(changes.c.rv)
        .limit(bindparam("most", type_=Integer))
        .subquery()
    )
    asked = select(head.c.rv.label("newest"), head.c.floor, page).outerjoin_from(head, page, true())
    return asked.where(head.c.id == 1).order_by(page.c.rv)
