"""The store's database on PostgreSQL, for one process or several.

A lock on the row of the revision counter is the right to write: its holder sees everything that others have committed,
so revisions are totally ordered without gaps. Each commit notifies the channel `kube_changes`, upon which the other
replicas read the changes that they have not seen. Leadership (whose controllers run) is an advisory lock in a session
of its own, which ends with the process in any case.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from matrixcontainer.kubeapi.storage.backend import ChangeRow, HistoryGap, ObjectRow, change_rows, object_rows
from matrixcontainer.kubeapi.storage.objects import Change, StorageError

CHANNEL = "kube_changes"
LEADER_LOCK_KEY = 0x6B756265  # "kube"
TIMEOUT_S = 5  # for a connection, and for the right to write
POLL_INTERVAL_S = 1.0  # a listener also polls that often, in case a notification is lost


class Postgres:
    """Connects on demand, and reconnects after a failure."""

    shared = True

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self.address = self._url.rpartition("@")[2]
        self._connection: psycopg.Connection[Any] | None = None
        self._leader_connection: psycopg.Connection[Any] | None = None
        self._is_leader = False
        self._listener: threading.Thread | None = None
        self._closing = threading.Event()

    def _connect(self) -> psycopg.Connection[Any]:
        """Connect with keepalives, so that a silent peer is detected within seconds."""
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=TIMEOUT_S,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            options=f"-c lock_timeout={TIMEOUT_S}s -c idle_in_transaction_session_timeout={2 * TIMEOUT_S}s",
        )

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as failure:
            kind = "Lost"
            if isinstance(failure, (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)):
                kind = "Full"
            elif isinstance(failure, (psycopg.errors.LockNotAvailable, psycopg.errors.CannotConnectNow)):
                kind = "Locked"
            elif isinstance(failure, (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted)):
                kind = "Damaged"
            text = str(failure).strip().replace("\n", " ") or type(failure).__name__
            raise StorageError(text, kind, f"PostgreSQL at {self.address}") from failure

    def load(self) -> tuple[int, int, list[ObjectRow], list[ChangeRow]]:
        with self._translating_errors():
            execute = self.connection.execute
            for name in ("revision", "compacted_revision"):
                execute("INSERT INTO kube_counters VALUES (%s, 0) ON CONFLICT DO NOTHING", (name,))
            with self.connection.transaction():
                execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                counters = dict(execute("SELECT name, value FROM kube_counters").fetchall())
                objects = execute(SELECT_OBJECTS, binary=True).fetchall()
                changes = execute(SELECT_CHANGES, (-1,), binary=True).fetchall()
        return counters["revision"], counters["compacted_revision"], objects, changes

    def newest_revision(self) -> int:
        with self._translating_errors():
            row = self.connection.execute("SELECT value FROM kube_counters WHERE name = 'revision'").fetchone()
        assert row is not None
        return int(row[0])

    # ---- one transaction

    def begin(self, after: int) -> list[ChangeRow]:
        try:
            with self._translating_errors():
                cursor = self.connection.execute(LOCK_REVISION)
                cursor.nextset()  # one result per statement
                row = cursor.fetchone()
                assert row is not None
                return [] if row[0] == after else self.changes_after(after)
        except BaseException:
            self.rollback()
            raise

    def write(self, batch: Sequence[Change]) -> None:
        upserts, deletions = object_rows(batch)
        with self._translating_errors(), self.connection.pipeline(), self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO kube_changes VALUES (%s, %s, %s, %s, %s, %s, %b, %b, %s)", change_rows(batch)
            )
            if upserts:
                cursor.executemany(UPSERT, upserts)
            if deletions:
                cursor.executemany(
                    "DELETE FROM kube_objects WHERE resource = %s AND namespace = %s AND name = %s", deletions
                )
            cursor.execute("UPDATE kube_counters SET value = %s WHERE name = 'revision'", (batch[-1].revision,))

    def commit(self) -> None:
        try:
            with self._translating_errors():
                self.connection.execute(f"NOTIFY {CHANNEL}; COMMIT")
        except StorageError:
            self.rollback()
            raise

    def rollback(self) -> None:
        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")
                return
            self._connection.close()

    def changes_after(self, revision: int) -> list[ChangeRow]:
        """Raises HistoryGap if some of them have been compacted."""
        with self._translating_errors():
            rows: list[ChangeRow] = self.connection.execute(SELECT_CHANGES, (revision,), binary=True).fetchall()
            if rows:
                complete = rows[0][0] == revision + 1
            else:
                row = self.connection.execute(
                    "SELECT value FROM kube_counters WHERE name = 'compacted_revision'"
                ).fetchone()
                complete = row is not None and row[0] <= revision
        if not complete:
            raise HistoryGap
        return rows

    def delete_changes(self, compacted_revision: int) -> int:
        with self._translating_errors(), self.connection.transaction():
            self.connection.execute(
                "UPDATE kube_counters SET value = %s WHERE name = 'compacted_revision'", (compacted_revision,)
            )
            return self.connection.execute(
                "DELETE FROM kube_changes WHERE revision <= %s", (compacted_revision,)
            ).rowcount

    # ---- among several

    def try_acquire_leadership(self) -> bool:
        try:
            if self._leader_connection is None or self._leader_connection.closed:
                self._leader_connection, self._is_leader = self._connect(), False
            query = "SELECT true" if self._is_leader else f"SELECT pg_try_advisory_lock({LEADER_LOCK_KEY})"
            row = self._leader_connection.execute(query).fetchone()
            self._is_leader = bool(row and row[0])
        except psycopg.Error:
            if self._leader_connection is not None:
                self._leader_connection.close()
            self._leader_connection, self._is_leader = None, False
        return self._is_leader

    def listen(self, on_commit: Callable[[], None]) -> None:
        def run() -> None:
            while not self._closing.is_set():
                try:
                    with self._connect() as connection:
                        connection.execute(f"LISTEN {CHANNEL}")
                        on_commit()
                        while not self._closing.is_set():
                            notifications = list(connection.notifies(timeout=POLL_INTERVAL_S, stop_after=1))
                            current = self._connection
                            own_pid = current.info.backend_pid if current is not None and not current.closed else 0
                            if not notifications or any(notification.pid != own_pid for notification in notifications):
                                on_commit()
                except psycopg.Error:
                    self._closing.wait(POLL_INTERVAL_S)

        self._listener = threading.Thread(target=run, name="kube-changes", daemon=True)
        self._listener.start()

    def close(self) -> None:
        self._closing.set()
        if self._listener is not None:
            self._listener.join(2 * POLL_INTERVAL_S)
        for connection in (self._connection, self._leader_connection):
            if connection is not None:
                connection.close()


LOCK_REVISION = "BEGIN; SELECT value FROM kube_counters WHERE name = 'revision' FOR UPDATE"
SELECT_OBJECTS = "SELECT resource, namespace, name, uid, revision, body FROM kube_objects"
SELECT_CHANGES = (
    "SELECT revision, type, resource, namespace, name, uid, body, previous, at FROM kube_changes"
    " WHERE revision > %s ORDER BY revision"
)
UPSERT = (
    "INSERT INTO kube_objects VALUES (%s, %s, %s, %s, %s, %b) ON CONFLICT (resource, namespace, name)"
    " DO UPDATE SET uid = excluded.uid, revision = excluded.revision, body = excluded.body"
)
