"""The database interface of the store: load everything at start, then one transaction per batch.

`begin` waits for the exclusive right to write and returns what others have written since; `write` adds a batch;
`commit` makes it durable; `rollback` discards it. Implementations are SQLite (one process, `sqlite.py`) and PostgreSQL
(any number of processes, `postgres.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from matrixcontainer.kubeapi.storage.objects import Change, Key, Record

ObjectRow = tuple[str, str, str, str, int, bytes]  # resource, namespace, name, uid, revision, body
ChangeRow = tuple[int, str, str, str, str, str, bytes, bytes | None, float]


class Database(Protocol):
    """All calls but `listen` come from one thread at a time. Failures are raised as StorageError."""

    shared: bool  # other processes may write to it too
    address: str  # its path or address in messages

    def load(self) -> tuple[int, int, Iterable[ObjectRow], Iterable[ChangeRow]]:
        """Return a consistent (revision, compacted_revision, objects, changes in order)."""
        ...

    def newest_revision(self) -> int:
        """The revision of the last committed batch of any process."""
        ...

    def begin(self, after: int) -> list[ChangeRow]:
        """Start an exclusive write transaction; return what others wrote after that revision."""
        ...

    def write(self, batch: Sequence[Change]) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def changes_after(self, revision: int) -> list[ChangeRow]: ...

    def delete_changes(self, compacted_revision: int) -> int:
        """Delete the changes up to `compacted_revision`; return how many."""
        ...

    def try_acquire_leadership(self) -> bool:
        """Whether this process is the one, among all on the database, that runs controllers. Called repeatedly."""
        ...

    def listen(self, on_commit: Callable[[], None]) -> None:
        """Call `on_commit`, from any thread, soon after each commit of another process."""

    def close(self) -> None: ...


class HistoryGap(Exception):
    """Changes by others were compacted before they were read: everything has to be reloaded."""


def object_rows(batch: Sequence[Change]) -> tuple[list[ObjectRow], list[tuple[str, str, str]]]:
    """(objects to write, keys to delete) for a batch: of several changes of one object only the last counts."""
    last_changes = {change.record.key: change for change in batch}
    upserts = [
        (*key, change.record.uid, change.record.revision, change.record.body)
        for key, change in last_changes.items()
        if change.type != "DELETED"
    ]
    return upserts, [key for key, change in last_changes.items() if change.type == "DELETED"]


def change_rows(batch: Sequence[Change]) -> list[ChangeRow]:
    return [
        (
            change.record.revision,
            change.type,
            *change.record.key,
            change.record.uid,
            change.record.body,
            change.previous.body if change.previous else None,
            change.at,
        )
        for change in batch
    ]


def read_change(row: Sequence[Any], record: Record | None = None) -> Change:
    """Convert a row to a change; `record` is the object before it, if the reader has it."""
    revision, kind, resource, namespace, name, uid, body, previous, at = row
    key = (resource, namespace, name)
    if record is None and previous is not None:
        record = Record(key, uid, 0, bytes(previous))
    return Change(kind, Record(key, uid, revision, bytes(body)), record, at)


def diff(before: dict[Key, Record], now: dict[Key, Record], revision: int, at: float) -> list[Change]:
    """The changes that lead from one state to another, one per object: first deletions, at the revision of the later
    state, then the others in order of revision.
    """
    deletions = [
        Change("DELETED", Record(key, old.uid, revision, old.body), old, at)
        for key, old in before.items()
        if key not in now or now[key].uid != old.uid
    ]
    deleted_keys = {change.record.key: None for change in deletions}
    updates = [
        Change("MODIFIED" if old else "ADDED", record, old, at)
        for key, record in sorted(now.items(), key=lambda item: item[1].revision)
        if (old := None if key in deleted_keys else before.get(key)) is None or old.revision != record.revision
    ]
    return deletions + updates


def read_records(rows: Iterable[ObjectRow]) -> Iterator[Record]:
    for resource, namespace, name, uid, revision, body in rows:
        yield Record((resource, namespace, name), uid, revision, bytes(body))
