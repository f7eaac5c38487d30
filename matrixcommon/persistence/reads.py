"""Sessions that only look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from matrixcommon.persistence.table_cache import CachingSession


@contextmanager
def looking(sessions: Callable[[], CachingSession]) -> Iterator[CachingSession]:
    """A session whose changes, should there be any, are thrown away.

    On a database server one that wrote nothing ends its transaction by a commit: at every rollback psycopg forgets the
    statements that are prepared on the connection, and the next of each kind are parsed and planned anew.
    """
    with sessions() as session:
        yield session
        if not session.wrote and session.get_bind().dialect.name != "sqlite":
            session.expunge_all()
            session.commit()
