"""What outlives the process that plays the nodes: each card's memory, and the faults put on the hardware.

A real node does not forget what it is when an agent restarts; neither does an emulated one. One SQLite file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import Unavailable


class FleetStore:
    """Documents by kind and name. Writes are durable when the call returns."""

    def __init__(self, path: Path | None) -> None:
        """`path` None keeps everything in memory: a test's fleet."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS documents (kind TEXT, name TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, name))"
        )

    def all(self, kind: str) -> dict[str, Any]:
        found = self._db.execute("SELECT name, body FROM documents WHERE kind = ? ORDER BY name", (kind,))
        return {name: json.loads(body) for name, body in found}

    def named(self, kind: str, name: str) -> dict[str, Any]:
        """That one document by its name, or nothing."""
        found = self._db.execute("SELECT name, body FROM documents WHERE kind = ? AND name = ?", (kind, name))
        return {current: json.loads(body) for current, body in found}

    def put(self, kind: str, documents: Mapping[str, Any]) -> None:
        """All of them in one transaction."""
        self.write({kind: documents})

    def remove(self, kind: str, name: str) -> None:
        self.write({}, [(kind, name)])

    def write(self, documents: Mapping[str, Mapping[str, Any]], gone: Iterable[tuple[str, str]] = ()) -> None:
        """Documents by kind and name are put, others (kind, name) removed: all of it in one transaction. Raises
        Unavailable where the disk does not take it."""
        rows = [(kind, name, json.dumps(body)) for kind, each in documents.items() for name, body in each.items()]
        keys = list(gone)
        if not rows and not keys:
            return
        try:
            self._write(rows, keys)
        except sqlite3.OperationalError as wrong:  # full, read-only, or locked by somebody else
            raise Unavailable(f"what the nodes keep cannot be written now: {wrong}; nothing was changed") from wrong

    def _write(self, rows: list[tuple[str, str, str]], keys: list[tuple[str, str]]) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany("DELETE FROM documents WHERE kind = ? AND name = ?", keys)
            self._db.executemany(
                "INSERT INTO documents VALUES (?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
                rows,
            )
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # some errors end it by themselves; left open, no other could ever begin
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._db.close()
