"""Faults of a service's database, applied to its SQLite file.

Read-only: triggers refuse every write, while reads continue; they stay until they are dropped. Stalled: the write lock
is held for a while, again and again; it is released when its holder ends.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

TRIGGER = "scenario_readonly_"
REFUSAL = "attempt to write a readonly database"
BUSY_WALL_S = 10.0
STALL_BUSY_WALL_S = 0.1
"""How long a stall waits for other writers; short, as it blocks the event loop."""
REST_WALL_S = 0.5
"""The pause between two stalls, in which waiting writes go through."""


def _open(file: Path, busy_wall_s: float = BUSY_WALL_S) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=busy_wall_s, isolation_level=None)


def refuse_writes(file: Path) -> None:
    """Make the database read-only; idempotent."""
    with closing(_open(file)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        database.execute("BEGIN IMMEDIATE")
        for table in tables:
            if not table.startswith("sqlite_"):
                for verb in ("INSERT", "UPDATE", "DELETE"):
                    database.execute(
                        f'CREATE TRIGGER IF NOT EXISTS "{TRIGGER}{table}_{verb}" BEFORE {verb} ON "{table}" '
                        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
                    )
        database.execute("COMMIT")


def allow_writes(file: Path) -> None:
    """Make the database writable again; idempotent."""
    with closing(_open(file)) as database:
        for trigger in _triggers(database):
            database.execute(f'DROP TRIGGER IF EXISTS "{trigger}"')


def writable(file: Path) -> bool:
    with closing(_open(file)) as database:
        return not _triggers(database)


def _triggers(database: sqlite3.Connection) -> list[str]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    return [name for (name,) in found if name.startswith(TRIGGER)]


class WriteLockStall:
    """Holds the write lock for `stall_s` at a time, from `start` to `stop`."""

    def __init__(self, file: Path, stall_s: float) -> None:
        self.file, self._stall_s = file, stall_s
        self._task: asyncio.Task[None] | None = None
        self.stalls = 0
        """The number of times that the lock was held."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with closing(_open(self.file, STALL_BUSY_WALL_S)) as database:
                try:
                    database.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    pass  # already locked by another writer
                else:
                    self.stalls += 1
                    await asyncio.sleep(self._stall_s)
                    database.execute("ROLLBACK")
            await asyncio.sleep(REST_WALL_S)
