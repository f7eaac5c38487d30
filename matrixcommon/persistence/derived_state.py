"""DerivedState: memory that says again what the tables say, and is never believed to say more.

Decisions are quick on memory and durable in tables. A verb that uses both (`changing`) opens with memory as the tables
are: it is read anew where something was committed that it has not seen (by another replica), or where a verb of ours
changed it and came to nothing. A verb in a group decides on what those before it in the group have decided; should the
group come to nothing, so does what memory has of it, before anybody else looks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import Database, ResourceRow

log = logging.getLogger(__name__)

UNSEEN = -1


class DerivedState:
    """`read(session)` has memory read back from the tables. Rows of `kinds` are changed in `changing` and nowhere
    else; other kinds are nothing to memory. Tables that `read` asks for are kept by the records."""

    def __init__(self, records: Database, read: Callable[[Session], None], kinds: tuple[type, ...]) -> None:
        self._records = records
        self._read = read
        self._kinds = kinds
        self._seen = UNSEEN
        """The newest change that memory has in it."""
        self._wrong = True
        """Memory says what no table does."""
        self._ahead = False
        """Memory has something in it that the group under way has not committed yet."""
        self._unit: object = None
        records.before_commit.append(self._follow)
        records.at_end.append(self._ended)

    @contextmanager
    def changing(self, dry: bool = False) -> Iterator[Session]:
        """A verb, after which memory and tables agree, whatever happened in it."""
        try:
            with self._records.transaction(dry) as session:
                newest: int = session.info["newest"]
                if self._wrong or newest != self._seen:
                    self._ahead = True
                    self._take_in(session, newest)
                self._unit = session.info.get("unit")
                yield session
                if not dry:
                    self._wrong = False  # unless the rest of it fails, and then all of its group does
                    self._ahead = True
            if not dry:
                self._seen = session.info["newest"]
                self._ahead = self._records.deciding
        finally:
            self._unit = None
            if dry:
                self._ended(False)

    def invalidate(self) -> None:
        """Reported before memory is changed: unless the verb comes to its end, memory is read back."""
        self._wrong = self._ahead = True

    def read_back(self) -> None:
        """What is committed, at once."""
        with self._records.reading() as session:
            self._take_in(session, self._records.newest(session))

    def _take_in(self, session: Session, newest: int) -> None:
        self._wrong, self._seen = True, UNSEEN
        self._read(session)
        self._wrong, self._seen = False, newest

    def _follow(self, session: Session, rows: Sequence[ResourceRow], newest: int) -> None:
        """What others change is no news, and nothing that was missed."""
        mine = self._unit is not None and self._unit is session.info["unit"]
        if not mine and self._seen == newest - len(rows) and not any(isinstance(row, self._kinds) for row in rows):
            self._ahead = True
            self._seen = newest

    def _ended(self, committed: bool) -> None:
        """Whoever looks at memory next sees what is so."""
        if self._ahead and not committed:
            self._wrong = True
        self._ahead = False
        if self._wrong:
            try:
                self.read_back()
            except SQLAlchemyError:  # the next verb reads it
                log.warning("memory could not be read back", exc_info=True)
