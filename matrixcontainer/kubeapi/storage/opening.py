"""Which database a URL means."""

from __future__ import annotations

from matrixcontainer.kubeapi.storage.backend import Database


def open_database(url: str, synchronous: str = "NORMAL") -> Database:
    """A database for a `sqlite:///file` or `postgresql://` URL, set up as the durability promise needs it."""
    if url.startswith("sqlite"):
        from matrixcontainer.kubeapi.storage.sqlite import Sqlite

        return Sqlite(url.removeprefix("sqlite://").removeprefix("/") or ":memory:", synchronous)
    from matrixcontainer.kubeapi.storage.postgres import Postgres

    return Postgres(url)
