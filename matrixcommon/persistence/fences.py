"""Fences: the newest known leader of each service, stored in the database that leaders write to.

Every write on behalf of a leader is checked against it in the same transaction, under the journal's lock. So nothing
that an older leader requested is committed once a newer one is known.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, String, Table, insert, update
from sqlalchemy.orm import Session

from matrixcommon.model.fencing import FENCE, REQUEST_FENCE, Fence
from matrixcommon.persistence.bulk_writes import fetch_one
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.resource_row import ResourceRow

TABLE = "leaders"


def leader_table(metadata: MetaData) -> Table:
    """The table of leaders, in a service's own metadata. `holder` and `renewals` are those of the service's own leader
    (see leadership)."""
    return Table(
        TABLE,
        metadata,
        Column("name", String(63), primary_key=True),
        Column("generation", BigInteger, nullable=False),
        Column("holder", String(63), nullable=False, server_default=""),
        Column("renewals", BigInteger, nullable=False, server_default="0"),
    )


class Fences:
    """The leaders known to one service's database."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._table = records.metadata.tables[TABLE]
        self._known: dict[str, int] = {}
        records.before_commit.append(self._compare)

    def record_leader(self, fence: Fence) -> None:
        """Record the leader that a request comes from. Raises StaleLeader if a newer one is known."""
        if fence.generation == self._known.get(fence.name):
            return
        with self._records.transaction() as session:
            self._records.lock(session)
            row = self.read(session, fence.name)
            if row is None or row["generation"] < fence.generation:
                self.write(session, fence.name, row is not None, generation=fence.generation)
            newest = fence.generation if row is None else max(fence.generation, row["generation"])
        self._known[fence.name] = newest
        if newest > fence.generation:
            raise fence.stale_error(newest)

    def read(self, session: Session, name: str) -> dict[str, Any] | None:
        asked = f"SELECT generation, holder, renewals FROM {self._table.name} WHERE name = %s"
        found = fetch_one(session.connection(), asked, (name,))
        return None if found is None else dict(zip(("generation", "holder", "renewals"), found, strict=True))

    def write(self, session: Session, name: str, there: bool, **columns: Any) -> None:
        table = self._table
        statement = (
            update(table).where(table.c.name == name).values(columns)
            if there
            else insert(table).values(name=name, **columns)
        )
        session.connection().execute(statement)

    def _compare(self, session: Session, rows: list[ResourceRow], newest: int) -> None:
        """Check the current leader, if any, before its changes are committed. Raises StaleLeader."""
        fence = FENCE.get() or REQUEST_FENCE.get()
        if fence is None:
            return
        row = self.read(session, fence.name)
        if row is not None and row["generation"] > fence.generation:
            fence.refused()
            raise fence.stale_error(row["generation"])
