"""Read-only sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from matrixcommon.persistence.table_cache import CachingSession


@contextmanager
def read_only_session(sessions: Callable[[], CachingSession]) -> Iterator[CachingSession]:
    """A session whose changes, if any, are discarded.

    On a database server a session that wrote nothing ends its transaction with a commit: at every rollback psycopg
    drops the connection's prepared statements, which would then be parsed and planned again.
    """
    with sessions() as session:
        yield session
        if not session.wrote and session.get_bind().dialect.name != "sqlite":
            session.expunge_all()
            session.commit()
