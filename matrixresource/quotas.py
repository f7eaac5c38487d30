"""Quotas: how much a project may hold at once. A project without one may hold all there is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixresource.contract import AllocationRequest, QuotaRequest, QuotaView
from matrixresource.store import AllocationRow, Base, ResourceStore
from matrixresource.vocabulary.errors import QuotaExceeded
from matrixresource.vocabulary.records import ResourceRow, check_etag, find
from matrixresource.wishing import size_of

COUNTED = ("npus", "cpus", "memory_gib")


class QuotaRow(ResourceRow, Base):
    """One project's limits, by the project's name."""

    __tablename__ = "quotas"
    kind = "quota"

    limits: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)

    def view(self) -> QuotaView:
        return QuotaView(**self.common(), **QuotaRequest.model_validate(self.limits).model_dump())


def used_by(session: Session, project: str, without: str = "") -> dict[str, float]:
    """What a project holds, except one allocation: NPUs (spares counted, they are kept from others), sockets, GiB."""
    total = dict.fromkeys(COUNTED, 0.0)
    for row in session.scalars(select(AllocationRow).where(AllocationRow.project == project)):
        if row.name != without and row.state != "Releasing":
            for counted, amount in wanted(row.request_held()).items():
                total[counted] += amount
    return total


def wanted(request: AllocationRequest) -> dict[str, float]:
    """What a request counts for."""
    nodes, per = size_of(request)
    return {"npus": nodes * per + request.spares * 8, "cpus": request.cpus, "memory_gib": request.memory_gib}


def check(session: Session, store: ResourceStore, name: str, request: AllocationRequest) -> None:
    """Raises QuotaExceeded where the project would hold more than it may; `name` is who asks."""
    row = session.get(QuotaRow, request.project)
    if row is None:
        return
    limits, used = QuotaRequest.model_validate(row.limits), used_by(session, request.project, name)
    blocking = []
    for counted, amount in wanted(request).items():
        limit = getattr(limits, counted)
        if limit is not None and amount and used[counted] + amount > limit:
            told = {"npus": "NPUs", "cpus": "CPU sockets", "memory_gib": "GiB"}[counted]
            blocking.append(
                {"domain": f"project {request.project}", "needs": f"{amount:g} {told}", "has": limit - used[counted]}
            )
    if blocking:
        first = blocking[0]
        raise QuotaExceeded(
            f"project {request.project!r} may hold {first['has']:g} more of what is asked ({first['needs']}); "
            "raise its quota or release something",
            blocking=blocking,
        )


class Quotas:
    """The verbs over quotas."""

    def __init__(self, store: ResourceStore) -> None:
        self._store = store

    def put(self, project: str, request: QuotaRequest, if_match: str | None = None) -> QuotaView:
        """Set a project's limits. What it holds above them stays; it gets no more."""
        with self._store.transaction() as session:
            row = session.get(QuotaRow, project)
            check_etag(row, if_match)
            if row is None:
                row = QuotaRow(name=project, project=project, state="Active", generation=0)
                session.add(row)
            if row.limits != request.wire():
                row.limits = request.wire()
                row.generation += 1
        return self.get(project)

    def get(self, project: str) -> QuotaView:
        with self._store.reading() as session:
            return self._shown(session, find(session, QuotaRow, project))

    def list(self) -> list[QuotaView]:
        with self._store.reading() as session:
            return [self._shown(session, row) for row in session.scalars(select(QuotaRow).order_by(QuotaRow.name))]

    def delete(self, project: str, if_match: str | None = None) -> None:
        with self._store.transaction() as session:
            row = find(session, QuotaRow, project)
            check_etag(row, if_match)
            session.delete(row)

    def _shown(self, session: Session, row: QuotaRow) -> QuotaView:
        used = used_by(session, row.name)
        return row.view().model_copy(update={f"used_{counted}": used[counted] for counted in COUNTED})
