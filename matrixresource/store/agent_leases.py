"""Leases of node agents: when each was last heard, for how long that holds, and how far its reports have come.

A replica knows exactly what it heard itself. For the others, and for its own next life, it writes that down whenever a
report changed anything, and else once in half a lease. That is enough to refuse what is stale: the reports since the
last one written reported nothing new, so to take one of them again would change nothing. And it is enough to judge by:
what only the table says is granted the half lease by which it may be behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Float, String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixresource.contract.agents import LOST_AFTER_LEASES
from matrixresource.store.tables import Base

BEHIND_LEASES = 0.5
"""How far behind, in leases, the table may be."""

WORSE = {"Connected": 0, "Stale": 1, "Lost": 2}


class LeaseRow(Base):
    """A lease as it was written down last. Times are the clock's seconds."""

    __tablename__ = "agent_leases"

    node: Mapped[str] = mapped_column(String(63), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)
    sequence: Mapped[int] = mapped_column(BigInteger)
    heard_at: Mapped[float] = mapped_column(Float)
    lease_s: Mapped[float] = mapped_column(Float)


@dataclass
class Lease:
    """What is known of one agent."""

    heard_at: float
    lease_s: float
    epoch: int
    sequence: int

    @property
    def reached(self) -> tuple[int, int]:
        return self.epoch, self.sequence

    def agent(self, now: float) -> str:
        silent_s = now - self.heard_at
        if silent_s <= self.lease_s:
            return "Connected"
        return "Stale" if silent_s <= self.lease_s * LOST_AFTER_LEASES else "Lost"


class Leases:
    """What this replica heard, beside what was written down. Used under the journal's lock."""

    def __init__(self) -> None:
        self._heard: dict[str, Lease] = {}
        self._written: dict[str, LeaseRow] = {}
        self._forgiven_s = 0.0
        self._first_read: dict[str, tuple[float, float]] = {}
        """By node, when the lease in the table is of, and what was forgiven in all until we first read it."""

    def open(self, session: Session, nodes: Sequence[str] | None = None) -> None:
        """Read what was written down of these nodes, or of all."""
        wanted = select(LeaseRow)
        rows = session.scalars(wanted if nodes is None else wanted.where(LeaseRow.node.in_([*map(str, nodes)])))
        self._written = {row.node: row for row in rows}
        for node, row in self._written.items():
            if self._first_read.get(node, (None,))[0] != row.heard_at:
                self._first_read[node] = row.heard_at, self._forgiven_s

    def reached(self, node: str) -> tuple[int, int] | None:
        """Life and number of the newest report that is known; None where none is."""
        known = [(row.epoch, row.sequence) for row in [self._written.get(node)] if row is not None]
        known += [lease.reached for lease in [self._heard.get(node)] if lease is not None]
        return max(known, default=None)

    def record_heartbeat(self, session: Session, node: str, lease: Lease, *, news: bool) -> None:
        """A report was taken; `news`: it changed something."""
        self._heard[node] = lease
        row = self._written.get(node)
        if row is None:
            row = self._written[node] = LeaseRow(node=node)
            session.add(row)
        elif not news and lease.heard_at - row.heard_at < BEHIND_LEASES * lease.lease_s and row.epoch == lease.epoch:
            return
        row.epoch, row.sequence, row.heard_at, row.lease_s = *lease.reached, lease.heard_at, lease.lease_s

    def heard_at(self, node: str) -> float | None:
        """When it was last heard, as far as is known; None where that was never."""
        heard, row = self._heard.get(node), self._written.get(node)
        known = [each.heard_at for each in (heard, row) if each is not None]
        return max(known, default=None)

    def forgive(self, seconds: float, now: float) -> None:
        """Nobody could be heard for that long: it is not held against them, nor against whom another replica hears.
        What stopped us may have stopped that one too; it gives up itself whom it hears no more."""
        self._forgiven_s += seconds
        for lease in self._heard.values():
            lease.heard_at = min(lease.heard_at + seconds, now)

    def agent(self, node: str, now: float, *, new: bool) -> str | None:
        """Connected, Stale or Lost by all that is known; None while it is too early to say.

        `new`: this replica is young, so that an agent may not have found it yet; only what it heard itself counts.
        """
        heard, row = self._heard.get(node), self._written.get(node)
        reported = [heard.agent(now)] if heard is not None else []
        # Only of what another replica heard after us the table knows more than we do.
        later = row is not None and (heard is None or (row.epoch, row.sequence) > heard.reached)
        if row is not None and later and not new:
            forgiven_s = self._forgiven_s - self._first_read[node][1]
            behind = min(now, row.heard_at + BEHIND_LEASES * row.lease_s + forgiven_s)
            reported.append(Lease(behind, row.lease_s, row.epoch, row.sequence).agent(now))
        return min(reported, key=WORSE.__getitem__) if reported else None if new else "Lost"
