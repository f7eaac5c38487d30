"""Leases of node agents: when each was last heard, how long that is valid, and which report was the newest.

A replica knows exactly what it heard itself. For other replicas, and for its own restart, it records that whenever a
report changed anything, and otherwise once per half lease. That is enough to refuse outdated reports: those since the
last record contained nothing new, so accepting one of them again would change nothing. And it is enough to detect
silence: a lease known only from the table is granted the half lease by which it may be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import BigInteger, Float, String, Table, bindparam, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.persistence.database_session import Database
from matrixresource.contract.agents import LOST_AFTER_LEASES
from matrixresource.store.tables import Base

STORED_LAG_LEASES = 0.5
"""How far behind, in leases, the table may be."""

AGENT_SEVERITY = {"Connected": 0, "Stale": 1, "Lost": 2}


class LeaseRow(Base):
    """A lease as last recorded. Times are the clock's seconds."""

    __tablename__ = "agent_leases"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
    sequence: Mapped[int] = mapped_column(BigInteger)
    heard_at: Mapped[float] = mapped_column(Float)
    lease_s: Mapped[float] = mapped_column(Float)


_TABLE: Table = LeaseRow.__table__  # type: ignore[assignment]
# On the table, not on the class: the ORM would rebuild the statement and each row for every batch of reports.
_INSERT = insert(_TABLE)
_UPDATE = (
    update(_TABLE)
    .where(_TABLE.c.node == bindparam("of_node"))
    .values({name: bindparam(name) for name in ("epoch", "sequence", "heard_at", "lease_s")})
)


@dataclass
class Lease:
    """What is known of one agent."""

    heard_at: float
    lease_s: float
    epoch: int
    sequence: int

    @property
    def newest_report(self) -> tuple[int, int]:
        return self.epoch, self.sequence

    def agent_state(self, now: float) -> str:
        silent_s = now - self.heard_at
        if silent_s <= self.lease_s:
            return "Connected"
        return "Stale" if silent_s <= self.lease_s * LOST_AFTER_LEASES else "Lost"


class Leases:
    """What this replica heard, and what was recorded. Used under the change log's lock, from `load` to the end of that
    transaction. If no other process writes, the table is read only once."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._received: dict[str, Lease] = {}
        self._stored: dict[str, Lease] | None = None
        """As in the table: all leases if no other process writes, otherwise those opened last."""
        self._extended_s = 0.0
        self._first_read: dict[str, tuple[float, float]] = {}
        """By node, the time of the recorded lease, and the total time forgiven before it was first read."""

    def load(self, session: Session, nodes: Sequence[str] | None = None) -> None:
        """Read the recorded leases of these nodes, or of all."""
        self._records.on_rollback(self._restore(dict(self._received)))
        if self._stored is not None and not self._records.shared:
            return
        columns = select(LeaseRow.node, LeaseRow.epoch, LeaseRow.sequence, LeaseRow.heard_at, LeaseRow.lease_s)
        if nodes is not None and self._records.shared:
            columns = columns.where(LeaseRow.node.in_([*map(str, nodes)]))
        self._stored = {
            row.node: Lease(row.heard_at, row.lease_s, row.epoch, row.sequence) for row in session.execute(columns)
        }
        for node, lease in self._stored.items():
            if self._first_read.get(node, (None,))[0] != lease.heard_at:
                self._first_read[node] = lease.heard_at, self._extended_s

    def _restore(self, received: dict[str, Lease]) -> Callable[[], None]:
        def undo() -> None:
            self._received, self._stored = received, None

        return undo

    def _received_and_stored(self, node: str) -> tuple[Lease | None, Lease | None]:
        """As heard, and as recorded."""
        return self._received.get(node), (self._stored or {}).get(node)

    def newest_report(self, node: str) -> tuple[int, int] | None:
        """Epoch and sequence of the newest known report; None if there is none."""
        return max(
            (lease.newest_report for lease in self._received_and_stored(node) if lease is not None), default=None
        )

    def record_heartbeats(self, session: Session, leases: dict[str, Lease], changed: Container[str]) -> None:
        """Record reports that were accepted, by node; those of nodes in `changed` changed something."""
        self._received |= leases
        stored = self._stored = {} if self._stored is None else self._stored
        due = {
            node: lease
            for node, lease in leases.items()
            if node in changed or self._is_outdated(stored.get(node), lease)
        }
        for statement, key, nodes in (
            (_INSERT, "node", due.keys() - stored.keys()),
            (_UPDATE, "of_node", due.keys() & stored.keys()),
        ):
            if nodes:
                session.execute(statement, [{key: str(node), **vars(due[node])} for node in sorted(nodes)])
        stored |= {node: replace(lease) for node, lease in due.items()}  # heard leases may be forgiven later

    @staticmethod
    def _is_outdated(stored: Lease | None, received: Lease) -> bool:
        """Whether the record would be further behind than others rely on."""
        if stored is None or stored.epoch != received.epoch:
            return True
        return received.heard_at - stored.heard_at >= STORED_LAG_LEASES * received.lease_s

    def heard_at(self, node: str) -> float | None:
        """When the agent was last heard, as far as is known; None if never."""
        return max((lease.heard_at for lease in self._received_and_stored(node) if lease is not None), default=None)

    def extend_all(self, seconds: float, now: float) -> None:
        """Do not count a time in which nothing could be heard, neither against agents this replica hears nor against
        those another hears. What stopped this process may have stopped that one too, and it detects lost agents of its
        own itself."""
        self._extended_s += seconds
        for lease in self._received.values():
            lease.heard_at = min(lease.heard_at + seconds, now)

    def agent_state(self, node: str, now: float, *, new: bool) -> str | None:
        """Connected, Stale or Lost by all that is known; None while it is too early to say.

        `new`: this replica has just started, so that an agent may not have found it yet; only what it heard itself
        counts.
        """
        received, stored = self._received_and_stored(node)
        states = [received.agent_state(now)] if received is not None else []
        # The table is ahead only if another replica heard the agent later than this one.
        later = stored is not None and (received is None or stored.newest_report > received.newest_report)
        if stored is not None and later and not new:
            extended_s = self._extended_s - self._first_read[node][1]
            assumed_at = min(now, stored.heard_at + STORED_LAG_LEASES * stored.lease_s + extended_s)
            states.append(replace(stored, heard_at=assumed_at).agent_state(now))
        return min(states, key=AGENT_SEVERITY.__getitem__) if states else None if new else "Lost"
