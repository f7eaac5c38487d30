"""Who the API is: its CA, its tokens, the key of its service accounts. In the state folder; replicas share one.

Replicas on one PostgreSQL keep these files in the database besides, so that a client who trusts one of them is known to
all. The first to start makes them, the others take them over; each has a server certificate of its own. Whoever may
read that database may act as the administrator: guard it as the folder is guarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHARED_FILES = ("ca.crt", "ca.key", "tokens.json")
ONE_AT_A_TIME = 0x6B756266  # an advisory lock: replicas that start together prepare one after another


@contextmanager
def one_at_a_time(url: str) -> Iterator[Any]:
    """A connection to PostgreSQL whose block no other replica is in; None on SQLite, which has one process only."""
    if url.startswith("sqlite"):
        yield None
        return
    import psycopg

    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (ONE_AT_A_TIME,))
        yield connection


def take_over(connection: Any, folder: Path) -> None:
    """Write what the database holds into the folder, except what the folder was given already."""
    for name, value in connection.execute("SELECT name, value FROM kube_identity").fetchall():
        path = folder / Path(name).name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(value)


def hand_over(connection: Any, folder: Path) -> None:
    """Keep what the folder holds in the database."""
    for name in SHARED_FILES:
        connection.execute(
            "INSERT INTO kube_identity VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, (folder / name).read_text()),
        )
