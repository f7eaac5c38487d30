"""The store's database as one SQLite file in WAL mode.

With `synchronous=NORMAL` an acknowledged write survives `kill -9` of the process at any instruction; a power loss may
lose the last moments but never consistency. With FULL it survives power loss too, at the cost of one disk flush per
batch. Checkpoints run in a thread and connection of their own, so that commits need not wait for them; if they fall
behind, a commit does one itself. The tables are those of the migrations; `tests/services/test_kube_tables.py` compares
them.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

from matrixcontainer.kubeapi.storage.backend import ChangeRow, ObjectRow, change_rows, object_rows
from matrixcontainer.kubeapi.storage.objects import Change, StorageError

CHECKPOINT_BYTES = 2**20  # a checkpoint starts after that many bytes of objects
WAL_PAGES_MAX = 4000  # WAL size at which a commit does a checkpoint itself
LOCK_TIMEOUT_S = 0.25  # blocks the event loop, so it is short: clients can retry

TABLES = (
    "CREATE TABLE IF NOT EXISTS kube_changes (revision BIGINT NOT NULL, type VARCHAR(8) NOT NULL,"
    " resource VARCHAR(320) NOT NULL, namespace VARCHAR(63) NOT NULL, name VARCHAR(253) NOT NULL,"
    " uid VARCHAR(36) NOT NULL, body BLOB NOT NULL, previous BLOB, at FLOAT NOT NULL, PRIMARY KEY (revision))",
    "CREATE TABLE IF NOT EXISTS kube_counters (name VARCHAR(32) NOT NULL, value BIGINT NOT NULL, PRIMARY KEY (name))",
    "CREATE TABLE IF NOT EXISTS kube_identity (name VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name))",
    "CREATE TABLE IF NOT EXISTS kube_objects (resource VARCHAR(320) NOT NULL, namespace VARCHAR(63) NOT NULL,"
    " name VARCHAR(253) NOT NULL, uid VARCHAR(36) NOT NULL, revision BIGINT NOT NULL, body BLOB NOT NULL,"
    " PRIMARY KEY (resource, namespace, name))",
)

REMEDIES = {  # kind and remedy by the prefix of SQLite's error name
    "SQLITE_FULL": ("Full", "the disk is full; free some space. No acknowledged write is lost"),
    "SQLITE_IOERR": ("Full", "the disk cannot be read or written; check its space, quota and health"),
    "SQLITE_BUSY": ("Locked", "another program has locked the database; stop it, or try again"),
    "SQLITE_LOCKED": ("Locked", "another program has locked the database; stop it, or try again"),
    "SQLITE_CORRUPT": ("Damaged", "restore the file from a backup, or move it away to start empty"),
    "SQLITE_NOTADB": ("Damaged", "restore the file from a backup, or move it away to start empty"),
    "SQLITE_READONLY": ("Refused", "the file is not writable; check its permissions"),
    "SQLITE_CONSTRAINT_TRIGGER": ("Refused", "a trigger blocks all writes; remove it"),
    "SQLITE_CANTOPEN": ("Refused", "the file cannot be opened; check its folder and permissions"),
}


def storage_error(path: str, failure: sqlite3.Error) -> StorageError:
    name = getattr(failure, "sqlite_errorname", "") or type(failure).__name__
    unknown = ("Lost", "check the file, its folder and its disk")
    kind, remedy = next((remedy_entry for prefix, remedy_entry in REMEDIES.items() if name.startswith(prefix)), unknown)
    return StorageError(f"{failure} ({name}): {remedy}", kind, path)


class Sqlite:
    """One connection, used by one thread at a time, though not always the same one."""

    shared = False

    def __init__(self, path: str, synchronous: str = "NORMAL") -> None:
        if synchronous not in ("NORMAL", "FULL"):
            raise ValueError(f"synchronous is NORMAL or FULL, not {synchronous}")
        self.address = path
        with self._translating_errors():
            self.connection = sqlite3.connect(
                path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute(f"PRAGMA synchronous={synchronous}")
            self.connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_MAX}")
        self._checkpointer: ThreadPoolExecutor | None = None
        self._checkpointing: Future[None] | None = None
        self._bytes_since_checkpoint = 0

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Raise SQLite's failures as StorageError with a remedy."""
        try:
            yield
        except sqlite3.Error as failure:
            raise storage_error(self.address, failure) from failure

    def load(self) -> tuple[int, int, list[ObjectRow], list[ChangeRow]]:
        with self._translating_errors():
            counters: dict[str, int] = dict(self.connection.execute("SELECT name, value FROM kube_counters"))
            for name in ("revision", "compacted_revision"):
                if name not in counters:
                    self.connection.execute("INSERT INTO kube_counters VALUES (?, 0)", (name,))
            objects: list[ObjectRow] = self.connection.execute(SELECT_OBJECTS).fetchall()
            changes: list[ChangeRow] = self.connection.execute(SELECT_CHANGES, (-1,)).fetchall()
        return counters.get("revision", 0), counters.get("compacted_revision", 0), objects, changes

    def newest_revision(self) -> int:
        with self._translating_errors():
            return int(self.connection.execute("SELECT value FROM kube_counters WHERE name = 'revision'").fetchone()[0])

    def begin(self, after: int) -> list[ChangeRow]:
        with self._translating_errors():
            self.connection.execute("BEGIN IMMEDIATE")
            revision = self.connection.execute("SELECT value FROM kube_counters WHERE name = 'revision'").fetchone()[0]
        if revision != after:
            self.rollback()
            raise StorageError("another process writes to this store", "Lost", self.address)
        return []

    def write(self, batch: Sequence[Change]) -> None:
        upserts, deletions = object_rows(batch)
        executemany = self.connection.executemany
        with self._translating_errors():
            executemany("INSERT INTO kube_changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", change_rows(batch))
            if upserts:
                executemany("INSERT OR REPLACE INTO kube_objects VALUES (?, ?, ?, ?, ?, ?)", upserts)
            if deletions:
                executemany("DELETE FROM kube_objects WHERE resource = ? AND namespace = ? AND name = ?", deletions)
            executemany("UPDATE kube_counters SET value = ? WHERE name = 'revision'", [(batch[-1].revision,)])
        self._bytes_since_checkpoint += sum(len(change.record.body) for change in batch)

    def commit(self) -> None:
        try:
            with self._translating_errors():
                self.connection.execute("COMMIT")
        except StorageError:
            self.rollback()
            raise
        if self._bytes_since_checkpoint > CHECKPOINT_BYTES and self.address != ":memory:":
            self._start_checkpoint()

    def _start_checkpoint(self) -> None:
        """Start a checkpoint in the background, unless one is running."""
        if self._checkpointing is not None and not self._checkpointing.done():
            return
        self._bytes_since_checkpoint = 0
        if self._checkpointer is None:
            self._checkpointer = ThreadPoolExecutor(1, "kube-log")
        self._checkpointing = self._checkpointer.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        """Do a passive checkpoint. What it cannot move is left to a later one, a commit or the next start."""
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(self.address, timeout=0.0, isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def rollback(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")

    def changes_after(self, revision: int) -> list[ChangeRow]:
        with self._translating_errors():
            return self.connection.execute(SELECT_CHANGES, (revision,)).fetchall()

    def delete_changes(self, compacted_revision: int) -> int:
        try:
            with self._translating_errors():
                self.connection.execute("BEGIN IMMEDIATE")
                self.connection.execute(
                    "UPDATE kube_counters SET value = ? WHERE name = 'compacted_revision'", (compacted_revision,)
                )
                deleted = self.connection.execute(
                    "DELETE FROM kube_changes WHERE revision <= ?", (compacted_revision,)
                ).rowcount
                self.connection.execute("COMMIT")
        except StorageError:
            self.rollback()
            raise
        return deleted

    def try_acquire_leadership(self) -> bool:
        return True

    def listen(self, on_commit: Callable[[], None]) -> None:
        """Do nothing: no other process writes."""

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.shutdown()
        with suppress(sqlite3.Error):
            self.connection.close()


SELECT_OBJECTS = "SELECT resource, namespace, name, uid, revision, body FROM kube_objects"
SELECT_CHANGES: Any = (
    "SELECT revision, type, resource, namespace, name, uid, body, previous, at FROM kube_changes"
    " WHERE revision > ? ORDER BY revision"
)
