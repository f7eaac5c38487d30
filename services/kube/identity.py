"""The identity of the API: its CA, tokens, and service-account key, in the state folder and shared by replicas.

Replicas on one PostgreSQL database also keep these files there, so that a client of one replica is known to all. The
first to start creates them, the others copy them; each has its own server certificate. Anyone who can read that
database can act as administrator: protect it like the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHARED_FILES = ("ca.crt", "ca.key", "tokens.json")
BOOTSTRAP_LOCK_KEY = 0x6B756266  # an advisory lock: replicas that start together prepare one after another


@contextmanager
def bootstrap_lock(url: str) -> Iterator[Any]:
    """A PostgreSQL connection that holds a lock against other replicas; None on SQLite, which has only one process."""
    if url.startswith("sqlite"):
        yield None
        return
    import psycopg

    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (BOOTSTRAP_LOCK_KEY,))
        yield connection


def fetch_identity(connection: Any, folder: Path) -> None:
    """Copy the files from the database to the folder, except those that exist there."""
    for name, value in connection.execute("SELECT name, value FROM kube_identity").fetchall():
        path = folder / Path(name).name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(value)


def publish_identity(connection: Any, folder: Path) -> None:
    """Copy the files from the folder to the database."""
    for name in SHARED_FILES:
        connection.execute(
            "INSERT INTO kube_identity VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, (folder / name).read_text()),
        )
