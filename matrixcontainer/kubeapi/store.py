"""Where objects live: one counter of revisions, every object once, every change in order, durable before acknowledged.

The database is the truth; a copy of the living objects is kept in memory as encoded JSON, filled at start, so that
reads and watches never wait for it. A write is checked against the newest state, gets the next revision, and joins
the batch of this turn of the event loop; the batch is one transaction, and only after it has been committed are
writers answered, readers served the new state and watchers woken, all in revision order.

Durability: SQLite in WAL mode. With `synchronous=NORMAL` an acknowledged write survives `kill -9` of the process at any
instruction; a loss of power may cost the last moments but never consistency. With `synchronous=FULL`, which the process
uses unless told otherwise, it survives loss of power too, at the price of one disk flush per batch. PostgreSQL follows
its own `synchronous_commit`.
One process serves one store; a second one is noticed at its first write (the counter moved) and gives up.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    create_engine,
    delete,
    event,
    select,
    text,
    update,
)

from matrixcontainer.kubeapi.records import Change, Key, Record, Stale, StoreLost, encode

HISTORY_S_MIN = 300.0  # changes younger than this are kept unless there are too many of them
HISTORY_S_MAX = 900.0
HISTORY_CHANGES_MAX = 40_000
HISTORY_BYTES_MAX = 48 * 2**20

metadata = MetaData()
objects = Table(
    "kube_objects",
    metadata,
    Column("resource", String(320), primary_key=True),
    Column("namespace", String(63), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("uid", String(36), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

log = logging.getLogger(__name__)
changes = Table(
    "kube_changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(8), nullable=False),
    Column("resource", String(320), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("name", String(253), nullable=False),
    Column("uid", String(36), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("previous", LargeBinary),
    Column("at", Float, nullable=False),
)
counters = Table(
    "kube_counters", metadata, Column("name", String(32), primary_key=True), Column("value", BigInteger, nullable=False)
)


@dataclass
class Log:
    """The changes of one resource, oldest first, and who waits for more. `start` counts what was trimmed away."""

    changes: deque[Change] = field(default_factory=deque)
    start: int = 0
    waiters: set[asyncio.Event] = field(default_factory=set)

    def end(self) -> int:
        return self.start + len(self.changes)

    def position_after(self, revision: int) -> int:
        """The place of the first change newer than `revision`."""
        low, high = 0, len(self.changes)
        while low < high:
            middle = (low + high) // 2
            if self.changes[middle].revision <= revision:
                low = middle + 1
            else:
                high = middle
        return self.start + low


def _place(record: Record) -> Key:
    return record.key


class Store:
    """`await put(...)` and `await remove(...)` return when the change is durable; reads never wait."""

    def __init__(self, engine: Engine, now: Callable[[], float]) -> None:
        self.engine = engine
        self.now = now
        self.revision = 0
        self.floor = 0  # the newest revision whose successors may have been forgotten
        self._next = 0
        self._objects: dict[str, dict[tuple[str, str], Record]] = {}
        self._sorted: dict[str, list[Record]] = {}
        self._pending: dict[Key, Record | None] = {}
        self._batch: list[Change] = []
        self._committed: asyncio.Future[None] | None = None
        self._logs: dict[str, Log] = {}
        self._history: deque[Change] = deque()
        self._history_bytes = 0
        self._statements: dict[str, tuple[str, list[str] | None]] = {}
        self.listeners: list[Callable[[Change], None]] = []
        self._load()

    # ---- reading

    def get(self, key: Key) -> Record | None:
        """The committed state."""
        return self._objects.get(key[0], {}).get(key[1:])

    def latest(self, key: Key) -> Record | None:
        """The newest state, the batch of this moment included: what a read-modify-write starts from."""
        return self._pending[key] if key in self._pending else self.get(key)

    def objects_of(self, resource: str, namespace: str = "") -> list[Record]:
        """Committed objects of a resource by namespace and name; all namespaces when none is given."""
        ordered = self._sorted.get(resource)
        if ordered is None:
            ordered = sorted(self._objects.get(resource, {}).values(), key=lambda record: record.key)
            self._sorted[resource] = ordered
        if not namespace:
            return ordered
        first = bisect_left(ordered, (resource, namespace, ""), key=_place)
        return ordered[first : bisect_left(ordered, (resource, namespace + "\0", ""), key=_place)]

    def objects_at(self, resource: str, namespace: str, revision: int) -> list[Record]:
        """The objects as they were at `revision`, which must not be older than `floor`."""
        state = dict(self._objects.get(resource, {}))
        for change in reversed(self.log(resource).changes):
            if change.revision <= revision:
                break
            if change.previous is None:
                state.pop(change.record.key[1:], None)
            else:
                state[change.record.key[1:]] = change.previous
        found = sorted(state.values(), key=lambda record: record.key)
        return [record for record in found if not namespace or record.key[1] == namespace]

    def count(self, resource: str) -> int:
        return len(self._objects.get(resource, {}))

    def resources(self) -> Iterable[str]:
        return [resource for resource, held in self._objects.items() if held]

    def log(self, resource: str) -> Log:
        return self._logs.setdefault(resource, Log())

    # ---- writing

    async def put(self, key: Key, obj: dict[str, Any], expected: Record | None) -> Record:
        """Create (`expected` None) or replace the object; sets metadata.resourceVersion. Raises Stale, StoreLost."""
        old = self.latest(key)
        if (old.revision if old else 0) != (expected.revision if expected else 0):
            raise Stale(key)
        record = self._revised(key, obj)
        return await self._enqueue(Change("MODIFIED" if old else "ADDED", record, old, self.now()))

    async def remove(self, key: Key, obj: dict[str, Any], expected: Record) -> Record:
        """Delete the object; `obj` is its last state, shown to watchers with the revision of the deletion."""
        old = self.latest(key)
        if old is None or old.revision != expected.revision:
            raise Stale(key)
        return await self._enqueue(Change("DELETED", self._revised(key, obj), old, self.now()))

    def _revised(self, key: Key, obj: dict[str, Any]) -> Record:
        self._next += 1
        obj["metadata"]["resourceVersion"] = str(self._next)
        return Record(key, obj["metadata"]["uid"], self._next, encode(obj))

    async def _enqueue(self, change: Change) -> Record:
        self._batch.append(change)
        self._pending[change.record.key] = None if change.type == "DELETED" else change.record
        if self._committed is None:
            loop = asyncio.get_running_loop()
            self._committed = loop.create_future()
            loop.call_soon(self._commit)
        await asyncio.shield(self._committed)
        return change.record

    def _commit(self) -> None:
        """Write the batch in one transaction, then show it to everybody, in order."""
        batch, waiting = self._batch, self._committed
        self._batch, self._committed, self._pending = [], None, {}
        assert waiting is not None
        try:
            self._write(batch)
        except Exception as failure:
            self._next = self.revision
            waiting.set_exception(StoreLost(f"the store could not keep the change: {failure}"))
            waiting.exception()  # every writer of the batch may have gone already
            return
        self.revision = batch[-1].revision
        for change in batch:
            self._show(change)
        waiting.set_result(None)
        for resource in {change.record.key[0] for change in batch}:
            for waiter in self._logs[resource].waiters:
                waiter.set()

    def _write(self, batch: list[Change]) -> None:
        last: dict[Key, Change] = {change.record.key: change for change in batch}
        gone = [change.record.key for change in last.values() if change.type == "DELETED"]
        kept = [change.record for change in last.values() if change.type != "DELETED"]
        with self.engine.begin() as connection:
            moved = connection.execute(
                update(counters)
                .where(counters.c.name == "revision", counters.c.value == self.revision)
                .values(value=batch[-1].revision)
            )
            if moved.rowcount != 1:
                raise RuntimeError("another process writes to this store")
            self._many(connection, "changes", changes.insert(), [_change_row(change) for change in batch])
            if kept:
                self._many(connection, "objects", UPSERT, [_object_row(record) for record in kept])
            if gone:
                connection.execute(FORGET, [dict(zip("rsn", key, strict=True)) for key in gone])

    def _many(self, connection: Connection, name: str, statement: Any, rows: list[dict[str, Any]]) -> None:
        """Run one statement for many rows, its text made once per store."""
        made = self._statements.get(name)
        if made is None:
            compiled = statement.compile(dialect=self.engine.dialect, column_keys=list(rows[0]))
            made = self._statements[name] = (str(compiled), compiled.positiontup)
        text, order = made
        if order:
            connection.exec_driver_sql(text, [tuple(row[column] for column in order) for row in rows])
        else:
            connection.exec_driver_sql(text, rows)

    def _show(self, change: Change) -> None:
        key = change.record.key
        held = self._objects.setdefault(key[0], {})
        if change.type == "DELETED":
            held.pop(key[1:], None)
        else:
            held[key[1:]] = change.record
        self._keep_sorted(key, None if change.type == "DELETED" else change.record)
        self._remember(change)
        for listener in self.listeners:
            try:
                listener(change)
            except Exception:
                # What is written must be seen by its writer and by everybody else, whatever a listener makes of it.
                log.exception("a listener failed", extra={"resource": key[0], "object": "/".join(key[1:])})

    def _keep_sorted(self, key: Key, record: Record | None) -> None:
        """Mend the sorted list instead of sorting anew; readers keep the list they have."""
        ordered = self._sorted.get(key[0])
        if ordered is None:
            return
        ordered = ordered.copy()
        at = bisect_left(ordered, key, key=_place)
        end = at + 1 if at < len(ordered) and ordered[at].key == key else at
        ordered[at:end] = [record] if record else []
        self._sorted[key[0]] = ordered

    # ---- history

    def _remember(self, change: Change) -> None:
        self.log(change.record.key[0]).changes.append(change)
        self._history.append(change)
        self._history_bytes += len(change.record.body)
        while self._history and self._too_much(change.at):
            oldest = self._history.popleft()
            self._history_bytes -= len(oldest.record.body)
            self.floor = oldest.revision
            log = self._logs[oldest.record.key[0]]
            log.changes.popleft()
            log.start += 1

    def _too_much(self, now: float) -> bool:
        return (
            len(self._history) > HISTORY_CHANGES_MAX
            or self._history_bytes > HISTORY_BYTES_MAX
            or now - self._history[0].at > HISTORY_S_MAX
        )

    def compact(self) -> int:
        """Delete from the database the changes no longer remembered, and forget old ones; returns rows deleted."""
        while self._history and self.now() - self._history[0].at > HISTORY_S_MIN:
            oldest = self._history.popleft()
            self._history_bytes -= len(oldest.record.body)
            self.floor = oldest.revision
            log = self._logs[oldest.record.key[0]]
            log.changes.popleft()
            log.start += 1
        with self.engine.begin() as connection:
            gone = connection.execute(delete(changes).where(changes.c.revision <= self.floor)).rowcount
            connection.execute(update(counters).where(counters.c.name == "floor").values(value=self.floor))
        return gone

    def _load(self) -> None:
        with self.engine.begin() as connection:
            known = {row.name: row.value for row in connection.execute(select(counters))}
            for name in {"revision", "floor"} - known.keys():
                connection.execute(counters.insert(), {"name": name, "value": 0})
            self.revision = self._next = known.get("revision", 0)
            self.floor = known.get("floor", 0)
            for row in connection.execute(select(objects)):
                key = (row.resource, row.namespace, row.name)
                record = Record(key, row.uid, row.revision, bytes(row.body))
                self._objects.setdefault(row.resource, {})[key[1:]] = record
            for row in connection.execute(select(changes).order_by(changes.c.revision)):
                key = (row.resource, row.namespace, row.name)
                record = Record(key, row.uid, row.revision, bytes(row.body))
                previous = Record(key, row.uid, 0, bytes(row.previous)) if row.previous is not None else None
                self._remember(Change(row.type, record, previous, row.at))

    def close(self) -> None:
        self.engine.dispose()


UPSERT = text(
    "INSERT INTO kube_objects (resource, namespace, name, uid, revision, body)"
    " VALUES (:resource, :namespace, :name, :uid, :revision, :body)"
    " ON CONFLICT (resource, namespace, name)"
    " DO UPDATE SET uid = excluded.uid, revision = excluded.revision, body = excluded.body"
)


FORGET = delete(objects).where(
    objects.c.resource == bindparam("r"), objects.c.namespace == bindparam("s"), objects.c.name == bindparam("n")
)


def _object_row(record: Record) -> dict[str, Any]:
    resource, namespace, name = record.key
    return {
        "resource": resource,
        "namespace": namespace,
        "name": name,
        "uid": record.uid,
        "revision": record.revision,
        "body": record.body,
    }


def _change_row(change: Change) -> dict[str, Any]:
    previous = change.previous.body if change.previous else None
    return _object_row(change.record) | {"type": change.type, "previous": previous, "at": change.at}


def open_engine(url: str, synchronous: str = "NORMAL") -> Engine:
    """An engine for a `sqlite:///file` or `postgresql+psycopg://` URL, set up as the durability promise needs it."""
    if not url.startswith("sqlite"):
        return create_engine(url, pool_size=1, max_overflow=2, pool_pre_ping=True)
    if synchronous not in ("NORMAL", "FULL"):
        raise ValueError(f"synchronous is NORMAL or FULL, not {synchronous}")
    if url in ("sqlite://", "sqlite:///:memory:"):
        from sqlalchemy.pool import StaticPool

        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        cursor.execute("PRAGMA busy_timeout=5000")
        cursor.close()

    return engine


def create_tables(engine: Engine) -> None:
    """Tables without migrations: for tests and in-memory stores."""
    metadata.create_all(engine)
