"""Open the database that a URL names."""

from __future__ import annotations

from matrixcontainer.kubeapi.storage.backend import Database


def open_database(url: str, synchronous: str = "NORMAL") -> Database:
    """Open a `sqlite:///file` or `postgresql://` URL. `synchronous` is SQLite's, and decides what survives a power
    loss."""
    if url.startswith("sqlite"):
        from matrixcontainer.kubeapi.storage.sqlite import Sqlite

        return Sqlite(url.removeprefix("sqlite://").removeprefix("/") or ":memory:", synchronous)
    from matrixcontainer.kubeapi.storage.postgres import Postgres

    return Postgres(url)
