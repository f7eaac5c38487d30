"""Events read from the services' journals: each change of a resource, in order of commit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from matrixcommon.model.errors import Gone
from services.recordings.recording import Event

SERVICES = ("resource", "link", "compute", "infer")


def revisions(folder: Path) -> dict[str, int]:
    """The revision of the newest change of each service that has a database."""
    return {name: _head(folder / f"{name}.db")[0] for name in SERVICES if (folder / f"{name}.db").exists()}


def events_since(folder: Path, since: dict[str, int]) -> list[Event]:
    """Every change after those revisions, service by service. Raises Gone if a journal no longer reaches back so
    far."""
    found = []
    for service, revision in since.items():
        file = folder / f"{service}.db"
        with closing(_open_database(file)) as database:
            rows = database.execute(
                "SELECT rv, kind, name, type, body FROM changes WHERE rv > ? ORDER BY rv", (revision,)
            ).fetchall()
        if revision < _head(file)[1]:
            raise Gone(f"the journal of {service} no longer reaches back to the start: make a shorter recording")
        found += [
            Event(service=service, revision=rv, kind=kind, name=name, type=type, body=body)
            for rv, kind, name, type, body in rows
        ]
    return found


def _open_database(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{file}?mode=ro", uri=True)


def _head(file: Path) -> tuple[int, int]:
    """The newest change, and the newest one that has been compacted away."""
    with closing(_open_database(file)) as database:
        newest, floor = database.execute("SELECT rv, floor FROM journal_head").fetchone() or (0, 0)
        return int(newest), int(floor)
