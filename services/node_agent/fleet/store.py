"""The state of the fleet that survives its process: each card's memory, and the injected faults, in one SQLite file.

Like a real node, an emulated one keeps its state when an agent restarts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import Unavailable
from matrixcommon.persistence.write_health import WriteHealth


class FleetStore:
    """Documents by kind and name. Writes are durable when the call returns."""

    def __init__(self, path: Path | None) -> None:
        """With `path` None everything is kept in memory, for tests."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS documents (kind TEXT, name TEXT, body TEXT NOT NULL, PRIMARY KEY (kind, name))"
        )
        self._write_health = WriteHealth(lambda: self._write([("probe", "probe", "{}")], []))

    def write_refusal(self) -> str | None:
        """Why the disk takes no writes now; None if it does."""
        refusal = self._write_health.refusal()
        return None if refusal is None else str(refusal)

    def all(self, kind: str) -> dict[str, Any]:
        found = self._db.execute("SELECT name, body FROM documents WHERE kind = ? ORDER BY name", (kind,))
        return {name: json.loads(body) for name, body in found}

    def lookup(self, kind: str, name: str) -> dict[str, Any]:
        """The document of that name in a dict, which is empty if there is none."""
        found = self._db.execute("SELECT name, body FROM documents WHERE kind = ? AND name = ?", (kind, name))
        return {current: json.loads(body) for current, body in found}

    def put(self, kind: str, documents: Mapping[str, Any]) -> None:
        """Write documents in one transaction."""
        self.write({kind: documents})

    def remove(self, kind: str, name: str) -> None:
        self.write({}, [(kind, name)])

    def write(self, documents: Mapping[str, Mapping[str, Any]], removed: Iterable[tuple[str, str]] = ()) -> None:
        """Write documents, by kind and name, and remove those in `removed` (kind, name), all in one transaction. Raises
        Unavailable if the disk refuses the write."""
        rows = [(kind, name, json.dumps(body)) for kind, each in documents.items() for name, body in each.items()]
        keys = list(removed)
        if not rows and not keys:
            return
        try:
            self._write(rows, keys)
        except sqlite3.OperationalError as wrong:  # full, read-only, or locked by another process
            self._write_health.refused(wrong)
            raise Unavailable(f"cannot write the state of the nodes: {wrong}; nothing was changed") from wrong
        self._write_health.accepted()

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
            if self._db.in_transaction:  # some errors end it themselves; if left open, no other could begin
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._db.close()
