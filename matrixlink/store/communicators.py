"""The table of communicators, with their specs. Their flows are computed, never stored."""

from __future__ import annotations

from sqlalchemy import JSON, Float, Integer, String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.resource_key import DEFAULT_PROJECT, reference_to
from matrixcommon.persistence.database_session import ResourceRow
from matrixlink.contract.communicators import CommunicatorView
from matrixlink.store.tables import Base


class CommunicatorRow(ResourceRow, Base):
    """One communicator. `ranks` None: every die of the slice's members."""

    __tablename__ = "communicators"
    kind = "communicator"

    slice: Mapped[str] = mapped_column(String(253), index=True)
    pattern: Mapped[str] = mapped_column(String(16))
    routing: Mapped[str] = mapped_column(String(16))
    ranks: Mapped[list[str] | None] = mapped_column(JSON)
    offered_gbps: Mapped[float | None] = mapped_column(Float)
    shift: Mapped[int | None] = mapped_column(Integer)
    holders: Mapped[int | None] = mapped_column(Integer)
    seed: Mapped[int] = mapped_column(Integer)

    @property
    def spec(self) -> tuple[object, ...]:
        """Everything that must be equal for a repeated PUT to change nothing."""
        return (self.project, self.labels or {}, self.slice, *self.terms)

    @property
    def terms(self) -> tuple[object, ...]:
        """What its flows are computed from, besides the slice's members."""
        ranks = None if self.ranks is None else tuple(self.ranks)
        return (self.pattern, self.routing, ranks, self.offered_gbps, self.shift, self.holders, self.seed)

    def view(self) -> CommunicatorView:
        return self.view_as(CommunicatorView, slice=reference_to(self.slice, self.project or DEFAULT_PROJECT))


def communicators_in(session: Session) -> list[CommunicatorRow]:
    """All of them, sorted by name."""
    return list(session.scalars(select(CommunicatorRow).order_by(CommunicatorRow.name)))
