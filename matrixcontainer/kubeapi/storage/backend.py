"""What the store asks of a database: everything at start, and a transaction for each batch.

`begin` waits until nobody else writes and returns what others have written since; `write` adds
a batch; `commit` makes it durable; `rollback` ends it with nothing kept. Behind it stand SQLite (one process,
`sqlite.py`) and PostgreSQL (any number of them, `postgres.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from matrixcontainer.kubeapi.storage.objects import Change, Key, Record

ObjectRow = tuple[str, str, str, str, int, bytes]  # resource, namespace, name, uid, revision, body
ChangeRow = tuple[int, str, str, str, str, str, bytes, bytes | None, float]


class Database(Protocol):
    """All calls but `listen` come from one thread at a time; failures are raised as StorageError."""

    shared: bool  # others may write to it too
    place: str  # how it is called in messages to people

    def load(self) -> tuple[int, int, Iterable[ObjectRow], Iterable[ChangeRow]]:
        """(revision, compacted_revision, objects, changes in order), all of one moment."""
        ...

    def newest(self) -> int:
        """The revision of the last committed batch, anybody's."""
        ...

    def begin(self, after: int) -> list[ChangeRow]:
        """Begin a transaction nobody else can write in; returns what others wrote after that revision."""
        ...

    def write(self, batch: Sequence[Change]) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def changes_after(self, revision: int) -> list[ChangeRow]: ...

    def forget(self, compacted_revision: int) -> int:
        """Delete the changes up to `compacted_revision`; returns how many."""
        ...

    def lead(self) -> bool:
        """Whether this process, of all on the database, is the one whose controllers act. Asked again and again."""
        ...

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard`, from any thread, soon after each commit of another process."""

    def close(self) -> None: ...


class HistoryGap(Exception):
    """Changes of others have been forgotten before they were read: everything has to be loaded anew."""


def object_rows(batch: Sequence[Change]) -> tuple[list[ObjectRow], list[tuple[str, str, str]]]:
    """(objects to keep, keys to delete) after a batch: of several changes of one object the last one counts."""
    last = {change.record.key: change for change in batch}
    kept = [
        (*key, change.record.uid, change.record.revision, change.record.body)
        for key, change in last.items()
        if change.type != "DELETED"
    ]
    return kept, [key for key, change in last.items() if change.type == "DELETED"]


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


def change_of(row: Sequence[Any], record: Record | None = None) -> Change:
    """A row as a change; `current` is the state before it where the reader has it."""
    revision, kind, resource, namespace, name, uid, body, previous, at = row
    key = (resource, namespace, name)
    if record is None and previous is not None:
        record = Record(key, uid, 0, bytes(previous))
    return Change(kind, Record(key, uid, revision, bytes(body)), record, at)


def differences(before: dict[Key, Record], now: dict[Key, Record], revision: int, at: float) -> list[Change]:
    """What must have happened between two states of which only these are known, as if each object changed once:
    deletions first, at the revision of the later state, then the others in their order.
    """
    gone = [
        Change("DELETED", Record(key, old.uid, revision, old.body), old, at)
        for key, old in before.items()
        if key not in now or now[key].uid != old.uid
    ]
    kept = {change.record.key: None for change in gone}
    came = [
        Change("MODIFIED" if old else "ADDED", record, old, at)
        for key, record in sorted(now.items(), key=lambda item: item[1].revision)
        if (old := None if key in kept else before.get(key)) is None or old.revision != record.revision
    ]
    return gone + came


def records_of(rows: Iterable[ObjectRow]) -> Iterator[Record]:
    for resource, namespace, name, uid, revision, body in rows:
        yield Record((resource, namespace, name), uid, revision, bytes(body))
