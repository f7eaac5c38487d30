"""The object store: one revision counter, all objects, all changes in order, durable before they are acknowledged.

The database is the source of truth. All objects are also kept in memory as encoded JSON, loaded at start, so reads and
watches never wait for it. A write is checked against the latest state, gets the next revision and joins the next batch.
One batch is in flight at a time, as one transaction; while it becomes durable, the next one fills. Only after the
commit are writers answered, new states visible to readers and watchers woken, all in revision order.

On a database that other processes write to as well (`database.shared`), each batch first acquires the right to write.
Their changes since are published first, then the batch is checked against them: writes that lost fail with Conflict,
the others get new revisions. Commits of other processes are applied as soon as they are noticed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from matrixcontainer.kubeapi.storage.backend import ChangeRow, Database, HistoryGap, diff, read_change, read_records
from matrixcontainer.kubeapi.storage.batch import Batch
from matrixcontainer.kubeapi.storage.change_log import HISTORY_S_MIN, History, ResourceLog
from matrixcontainer.kubeapi.storage.lost_writes import LostWrites
from matrixcontainer.kubeapi.storage.object_table import ObjectTable
from matrixcontainer.kubeapi.storage.objects import Change, Conflict, Key, Record, StorageError, check_size, encode

log = logging.getLogger(__name__)

INLINE_COMMIT_S_MAX = 0.0005  # commits faster than this are not worth a thread switch
PREEMPTED = -1  # revision of a write that another process pre-empted


class Store:
    """`await put(...)` and `await remove(...)` return when the change is durable; reads never wait.

    With `threaded`, slow commits run in a thread; without, in the event loop, which suits in-memory databases.
    """

    def __init__(self, database: Database, now: Callable[[], float], threaded: bool = False) -> None:
        self.database = database
        self.now = now
        self.revision = 0
        self.history = History()
        self._table = table = ObjectTable()
        self.get, self.objects_of, self.count, self.resources = (
            table.get,
            table.objects_of,
            table.count,
            table.resources,
        )
        self.listeners: list[Callable[[Change], None]] = []
        self._last_assigned_revision = 0
        self._pending: dict[Key, Record | None] = {}
        self._next_batch: Batch | None = None
        self._in_flight: Batch | None = None
        self.lost_writes = LostWrites()
        self._executor = ThreadPoolExecutor(1, "kube-store") if threaded else None
        self._average_commit_s = 0.0  # moving average of the duration of a commit
        self._catching_up: asyncio.Future[None] | None = None
        self._load()

    # ---- reading

    @property
    def shared(self) -> bool:
        return self.database.shared

    @property
    def compacted_revision(self) -> int:
        """The revision up to which changes have been discarded."""
        return self.history.compacted_revision

    def log(self, resource: str) -> ResourceLog:
        return self.history.log(resource)

    def latest(self, key: Key) -> Record | None:
        """The latest state including pending writes, from which a read-modify-write starts."""
        return self._pending[key] if key in self._pending else self.get(key)

    def objects_at(self, resource: str, namespace: str, revision: int) -> list[Record]:
        """The objects at `revision`, which must not be older than `compacted_revision`."""
        state = self._table.snapshot(resource)
        for change in reversed(self.log(resource).changes):
            if change.revision <= revision:
                break
            if change.previous is None:
                state.pop(change.record.key[1:], None)
            else:
                state[change.record.key[1:]] = change.previous
        records = sorted(state.values(), key=lambda record: record.key)
        return [record for record in records if not namespace or record.key[1] == namespace]

    # ---- writing

    async def put(self, key: Key, obj: dict[str, Any], expected: Record | None) -> Record:
        """Create (`expected` None) or replace the object. Raises Conflict, TooLarge, StorageError."""
        old = self.latest(key)
        if (old.revision if old else 0) != (expected.revision if expected else 0):
            raise Conflict(key)
        record = self._with_next_revision(key, obj)
        check_size(record)
        return await self._enqueue(Change("MODIFIED" if old else "ADDED", record, old, self.now()))

    async def remove(self, key: Key, obj: dict[str, Any], expected: Record) -> Record:
        """Delete the object. Watchers see `obj` as its last state, with the revision of the deletion."""
        old = self.latest(key)
        if old is None or old.revision != expected.revision:
            raise Conflict(key)
        return await self._enqueue(Change("DELETED", self._with_next_revision(key, obj), old, self.now()))

    def _with_next_revision(self, key: Key, obj: dict[str, Any]) -> Record:
        """The object at the next revision. The revision is only taken once the object joins a batch, so that there are
        no gaps."""
        revision = self._last_assigned_revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        return Record(key, obj["metadata"]["uid"], revision, encode(obj))

    async def _enqueue(self, change: Change) -> Record:
        batch = self._next_batch
        if batch is None:
            batch = self._next_batch = Batch()
            if self._in_flight is None:
                asyncio.get_running_loop().call_soon(self._begin_batch)
        self._last_assigned_revision = change.revision
        batch.changes.append(change)
        self._pending[change.record.key] = _state_after(change)
        await batch.outcome()
        if change.record.revision == PREEMPTED:
            raise Conflict(change.record.key)
        return change.record

    def _begin_batch(self) -> None:
        """Start the next batch, unless one is in flight; its end starts the next."""
        if self._in_flight is not None or self._next_batch is None:
            return
        self._in_flight, self._next_batch = self._next_batch, None
        after = self.revision
        if not self._in_flight.changes:
            self._complete_batch(None, None)
            return
        if self.shared:
            self._run_job(lambda: self.database.begin(after), self._on_transaction_begun)
            return
        try:
            self.database.begin(after)
            self._write()
        except StorageError as failure:
            self._complete_batch(None, failure)
            return
        if self._average_commit_s < INLINE_COMMIT_S_MAX:  # faster than handing it to the thread
            self._complete_batch(*_outcome(self._timed_commit))
        else:
            self._run_job(self._timed_commit, self._complete_batch)

    def _timed_commit(self) -> None:
        started = time.perf_counter()
        self.database.commit()
        self._average_commit_s += 0.25 * (time.perf_counter() - started - self._average_commit_s)

    def _on_transaction_begun(self, foreign: list[ChangeRow] | None, failure: Exception | None) -> None:
        if foreign is None:
            self._complete_batch(None, failure)
            return
        if foreign:
            self._apply_foreign(foreign)
            self._rebase()
        assert self._in_flight is not None
        if self._in_flight.changes:
            self._run_job(self._write_and_commit, self._complete_batch)
        else:
            self._run_job(self.database.rollback, self._complete_batch)

    def _write(self) -> None:
        assert self._in_flight is not None
        try:
            self.database.write(self._in_flight.changes)
        except StorageError:
            self.database.rollback()
            raise

    def _write_and_commit(self) -> None:
        self._write()
        self.database.commit()

    def _run_job(self, job: Callable[[], Any], callback: Callable[[Any, Exception | None], None]) -> None:
        """Run a database job, in the worker thread if there is one, and call `callback` with its result or failure."""
        if self._executor is None:
            callback(*_outcome(job))
            return
        loop = asyncio.get_running_loop()
        self._executor.submit(lambda: loop.call_soon_threadsafe(callback, *_outcome(job)))

    def _complete_batch(self, _: Any, failure: Exception | None) -> None:
        """Complete the batch: it is durable, or lost together with the next one, which builds on it."""
        batch, self._in_flight = self._in_flight, None
        assert batch is not None
        if failure is not None:
            self._fail_batches(batch, failure)
            return
        for change in batch.changes:
            self._publish(change)
        if batch.changes:
            self.revision = batch.changes[-1].revision
            self.lost_writes.clear()
        queued = self._next_batch.changes if self._next_batch else []
        self._pending = {change.record.key: _state_after(change) for change in queued} if queued else {}
        batch.resolve()
        self._wake(batch.changes)
        self._begin_batch()

    def _fail_batches(self, batch: Batch, failure: Exception) -> None:
        error = failure if isinstance(failure, StorageError) else StorageError(f"the store failed: {failure!r}")
        self.lost_writes.record(error)
        for pending_batch in (batch, self._next_batch):
            if pending_batch is not None:
                pending_batch.resolve(error)
        self._next_batch, self._pending = None, {}
        self._last_assigned_revision = self.revision
        if isinstance(failure, HistoryGap):
            self._reload()
        # A commit whose response was lost may have succeeded; it is then found like another process's.
        self.catch_up()

    # ---- what others wrote

    def _rebase(self) -> None:
        """Give pending writes new revisions after those of other processes, and drop the ones that conflict."""
        self._last_assigned_revision, self._pending = self.revision, {}
        for batch in (self._in_flight, self._next_batch):
            if batch is not None:
                batch.changes = [change for change in batch.changes if self._renumber(change)]

    def _renumber(self, change: Change) -> bool:
        record = change.record
        if self.latest(record.key) is not change.previous:
            record.revision = PREEMPTED
            return False
        obj = record.obj
        self._last_assigned_revision += 1
        record.revision = self._last_assigned_revision
        obj["metadata"]["resourceVersion"] = str(self._last_assigned_revision)
        record.body = encode(obj)
        self._pending[record.key] = _state_after(change)
        return True

    def _apply_foreign(self, rows: Iterable[ChangeRow]) -> None:
        """Publish what other processes committed."""
        applied = []
        for row in rows:
            if row[0] <= self.revision:
                continue
            change = read_change(row, self.get((row[2], row[3], row[4])))
            self._publish(change)
            self.revision = change.revision
            applied.append(change)
        if applied and self._in_flight is None and self._next_batch is None:
            self._last_assigned_revision = self.revision
        self._wake(applied)

    def catch_up(self) -> "asyncio.Future[None]":
        """Read and publish what other processes have written up to now. Concurrent callers share one read."""
        if self._catching_up is None:
            reading = self._catching_up = asyncio.get_running_loop().create_future()

            def begin() -> None:
                after = self.revision
                if self._catching_up is reading:
                    self._catching_up = None  # later callers need a new read
                self._run_job(
                    lambda: self.database.changes_after(after),
                    lambda rows, lost: self._on_caught_up(reading, rows, lost),
                )

            asyncio.get_running_loop().call_soon(begin)
        return self._catching_up

    def _on_caught_up(
        self, reading: "asyncio.Future[None]", rows: list[ChangeRow] | None, failure: Exception | None
    ) -> None:
        if rows:
            self._apply_foreign(rows)
        elif isinstance(failure, HistoryGap):
            self._reload()
        if (rows or isinstance(failure, HistoryGap)) and self._in_flight is None:
            self._rebase()
        if reading.cancelled():
            return
        if isinstance(failure, StorageError):
            reading.set_exception(failure)
            reading.exception()
        else:
            reading.set_result(None)

    async def read_latest(self) -> None:
        """Wait until everything committed before now by any process can be read. Raises StorageError."""
        if self.shared:
            await asyncio.shield(self.catch_up())

    def listen(self) -> None:
        """Start following other processes' commits."""
        loop = asyncio.get_running_loop()

        def on_commit() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.catch_up)

        self.database.listen(on_commit)

    async def try_acquire_leadership(self) -> bool:
        """Whether this process, among all on the database, is to run its controllers."""
        if self._executor is None:
            return self.database.try_acquire_leadership()
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.database.try_acquire_leadership)

    # ---- showing

    def _publish(self, change: Change) -> None:
        self._table.set(change.record.key, _state_after(change))
        self.history.append(change)
        self._notify_listeners(change)

    def _notify_listeners(self, change: Change) -> None:
        resource, namespace, name = change.record.key
        for listener in self.listeners:
            try:
                listener(change)
            except Exception:
                # A failing listener must not keep a committed change from its writer or other readers.
                log.exception("a listener failed", extra={"resource": resource, "object": f"{namespace}/{name}"})

    def _wake(self, changes: list[Change]) -> None:
        for resource in {change.record.key[0] for change in changes}:
            self.log(resource).wake()

    # ---- life

    async def compact(self) -> int:
        """Discard old changes from the history and delete discarded ones from the database; return the rows deleted."""
        while self._in_flight is not None:
            await asyncio.wait((self._in_flight.done,))
        self.history.discard_before(self.now() - HISTORY_S_MIN)
        compacted_revision, barrier = self.compacted_revision, Batch()
        self._in_flight = barrier  # blocks writes meanwhile
        deleted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_deleted(count: int, failure: Exception | None) -> None:
            if not deleted.done():  # the caller may have been cancelled, but writers still wait
                if failure is None:
                    deleted.set_result(count)
                else:
                    deleted.set_exception(failure)
            self._complete_batch(None, None)

        self._run_job(lambda: self.database.delete_changes(compacted_revision), on_deleted)
        return await deleted

    def _load(self) -> None:
        self.revision, compacted_revision, objects, changes = self.database.load()
        self._last_assigned_revision = self.revision
        self.history.compacted_revision = compacted_revision
        for record in read_records(objects):
            self._table.set(record.key, record)
        states: dict[Key, Record | None] = {}
        for row in changes:
            change = read_change(row)
            key = change.record.key
            if change.previous is not None:
                change.previous = states.get(key) or change.previous
            current = self.get(key)
            if current is not None and current.revision == change.revision:
                change.record = current
            states[key] = _state_after(change)
            self.history.append(change)

    def _reload(self) -> None:
        """Reload everything after a gap: every watch has to restart, and listeners are told the differences."""
        self.history.discard_all(self.revision)
        before = self._table.clear()
        self._load()
        for change in diff(before, self._table.all_objects(), self.revision, self.now()):
            self._notify_listeners(change)
        for log in list(self.history.logs.values()):
            log.wake()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
        self.database.close()


def _state_after(change: Change) -> Record | None:
    return None if change.type == "DELETED" else change.record


def _outcome(job: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return job(), None
    except Exception as failure:
        return None, failure
