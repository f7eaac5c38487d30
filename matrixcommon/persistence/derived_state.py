"""DerivedState: in-memory state derived from tables, kept consistent with them.

Decisions are fast on memory and durable in tables. A verb that uses both (`transaction`) starts with memory equal to
the tables: memory is reloaded if another replica has committed something that it does not contain, or if a verb of this
process changed it and was rolled back. A verb in a group sees the decisions of those before it; if the group is rolled
back, memory is reloaded before anybody else reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import Database, ResourceRow

log = logging.getLogger(__name__)

NOT_LOADED = -1


class DerivedState:
    """`read(session)` reloads memory from the tables. Rows of `kinds` may be changed only within `transaction`; memory
    does not depend on other kinds. `records` must cache the tables that `read` queries."""

    def __init__(self, records: Database, read: Callable[[Session], None], kinds: tuple[type, ...]) -> None:
        self._records = records
        self._read = read
        self._kinds = kinds
        self._seen = NOT_LOADED
        """The number of the newest change in memory."""
        self._stale = True
        """Memory may differ from the tables."""
        self._ahead = False
        """Memory contains decisions that the current group has not committed yet."""
        self._unit: object = None
        records.before_commit.append(self._follow)
        records.after_transaction.append(self._ended)

    @contextmanager
    def transaction(self, dry: bool = False) -> Iterator[Session]:
        """A verb's transaction, after which memory and tables agree whatever happened."""
        try:
            with self._records.transaction(dry) as session:
                newest: int = session.info["newest"]
                if self._stale or newest != self._seen:
                    self._ahead = True
                    self._load(session, newest)
                self._unit = session.info.get("unit")
                yield session
                if not dry:
                    self._stale = False  # if its commit fails, its whole group is rolled back
                    self._ahead = True
            if not dry:
                self._seen = session.info["newest"]
                self._ahead = self._records.in_transaction
        finally:
            self._unit = None
            if dry:
                self._ended(False)

    def invalidate(self) -> None:
        """Call before changing memory: unless the verb completes, memory is reloaded."""
        self._stale = self._ahead = True

    def reload(self) -> None:
        """Reload the committed state now."""
        with self._records.reading() as session:
            self._load(session, self._records.newest(session))

    def _load(self, session: Session, newest: int) -> None:
        self._stale, self._seen = True, NOT_LOADED
        self._read(session)
        self._stale, self._seen = False, newest

    def _follow(self, session: Session, rows: Sequence[ResourceRow], newest: int) -> None:
        """Advance past changes of other kinds, which memory does not depend on."""
        mine = self._unit is not None and self._unit is session.info["unit"]
        if not mine and self._seen == newest - len(rows) and not any(isinstance(row, self._kinds) for row in rows):
            self._ahead = True
            self._seen = newest

    def _ended(self, committed: bool) -> None:
        """Reload memory if it may be wrong, so that the next reader sees the committed state."""
        if self._ahead and not committed:
            self._stale = True
        self._ahead = False
        if self._stale:
            try:
                self.reload()
            except SQLAlchemyError:  # the next verb reads it
                log.warning("memory could not be read back", exc_info=True)
