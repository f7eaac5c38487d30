"""Quotas: how much a project may hold at once. A project without a quota is unlimited.

Capacity promised to a reservation counts from the moment of the promise, whenever it starts; activating it changes
nothing. What a project draws from its own reservation is not counted twice. Lowering a limit below current usage takes
nothing away, but lets nothing new in.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from sqlalchemy import JSON, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.errors import InvalidField, QuotaExceeded
from matrixcommon.persistence.database_session import ResourceRow, find
from matrixcommon.persistence.table_cache import all_rows
from matrixresource.allocations.cluster_index import npus_of_node
from matrixresource.allocations.request_mapping import member_size
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.quotas import QuotaRequest, QuotaView
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.reservations import active_reservations
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base

PROJECT = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A project may be a Kubernetes namespace, so its name follows the same rules (RFC 1123)."""
COUNTED = ("npus", "cpus", "memory_gib")


class QuotaRow(ResourceRow, Base):
    """One project's limits, keyed by the project's name."""

    __tablename__ = "quotas"
    kind = "quota"

    limits: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)

    def view(self) -> QuotaView:
        return QuotaView(**self.common(), **QuotaRequest.from_stored(self.limits).model_dump())


Amounts = dict[str, float]
"""Amounts of each of `COUNTED`: NPUs (a spare counts as a whole node, since it is kept from others), sockets, GiB."""


def used_by(session: Session, project: str) -> Amounts:
    """What a project holds and is promised."""
    return used_by_each(session, {project})[project]


def used_by_each(session: Session, projects: Collection[str]) -> dict[str, Amounts]:
    """The same for each of these projects in one pass over all allocations."""
    totals = {project: dict.fromkeys(COUNTED, 0.0) for project in projects}
    of_node = npus_of_node(session)
    current = (row for row in all_rows(session, AllocationRow) if row.project in totals)
    promised = (row for row in active_reservations(session) if row.promised and row.project in totals)
    usage = [(row.project, _allocated(row, of_node)) for row in current]
    usage += [(row.project, requested_usage(row.spec(), of_node)) for row in promised]
    for project, mine in usage:
        for counted in COUNTED:
            totals[project][counted] += mine[counted]
    return totals


def requested_usage(request: AllocationRequest, of_node: int) -> Amounts:
    """What a request counts for, with `of_node` NPUs in a node."""
    nodes, per = member_size(request, of_node)
    return {"npus": nodes * per + request.spares * of_node, "cpus": request.cpus, "memory_gib": request.memory_gib}


def _allocated(row: AllocationRow, of_node: int) -> Amounts:
    """What an allocation counts for; while it moves, the larger of its old and new size.

    Its members may differ in size after others have drawn on it.
    """
    if row.state == "Releasing":
        return dict.fromkeys(COUNTED, 0.0)
    request = row.spec()
    mine = {"npus": row.npus + row.spares * of_node, "cpus": request.cpus, "memory_gib": request.memory_gib}
    coming = mine if row.moving_to is None else requested_usage(AllocationRequest.from_stored(row.moving_to), of_node)
    return {counted: max(mine[counted], coming[counted]) for counted in COUNTED}


def check(session: Session, request: AllocationRequest, allocation: AllocationRow | None = None) -> None:
    """Raises QuotaExceeded if the project would exceed its limits; `allocation` is the one that the request would
    change.

    A project above limits that were lowered may keep what it has, take less, and use what was promised to it before:
    only additions to what it holds and is promised are refused.
    """
    row = session.get(QuotaRow, request.project)
    if row is None:
        return
    limits, used = QuotaRequest.from_stored(row.limits), used_by(session, request.project)
    of_node = npus_of_node(session)
    before = dict.fromkeys(COUNTED, 0.0) if allocation is None else _allocated(allocation, of_node)
    moved = _already_reserved(session, request, of_node)
    blocking, sentences = list[dict[str, Any]](), list[str]()
    for counted, amount in requested_usage(request, of_node).items():
        counted_already = before[counted] + min(moved[counted], amount)
        others = used[counted] - counted_already
        limit = getattr(limits, counted)
        if limit is not None and amount > counted_already and others + amount > limit:
            text = {"npus": "NPUs", "cpus": "CPU sockets", "memory_gib": "GiB"}[counted]
            blocking.append(
                {
                    "domain": f"project {request.project}",
                    "needs": f"{amount:.10g} {text}",
                    "has": max(0, limit - others),
                }
            )
            elsewhere = f", of which {others:.10g} are in use elsewhere" if others else ""
            sentences.append(f"has a quota of {limit:.10g} {text}{elsewhere}, but needs {amount:.10g} here")
    if blocking:
        raise QuotaExceeded(
            f"project {request.project!r} {' and '.join(sentences)}; raise the quota or release something",
            blocking=blocking,
        )


def _already_reserved(session: Session, request: AllocationRequest, of_node: int) -> Amounts:
    """What the project already holds in the reservation that the request draws on; only the rest is new."""
    allocation = session.get(AllocationRow, request.reservation) if request.reservation is not None else None
    own = allocation is not None and allocation.project == request.project
    return _allocated(allocation, of_node) if allocation is not None and own else dict.fromkeys(COUNTED, 0.0)


class Quotas:
    """The verbs over quotas."""

    def __init__(self, store: ResourceStore) -> None:
        self._store = store

    def put(self, name: str, request: QuotaRequest) -> QuotaView:
        """Set a project's limits. It keeps what it holds above them, but gets nothing more."""
        if not PROJECT.fullmatch(name):
            raise InvalidField(
                f"{name[:80]!r} is not a valid project name: use up to 63 of a-z, 0-9 and '-', not '-' first or last",
                field="name",
            )
        with self._store.transaction() as session:
            row = session.get(QuotaRow, name)
            if row is None:
                row = QuotaRow(name=name, project=name, state="Active", generation=0)
                session.add(row)
            if row.limits != request.wire():
                row.limits = request.wire()
                row.generation += 1
            session.flush()
            used = used_by(session, name)
        return _shown(row, used)

    def get(self, name: str) -> QuotaView:
        with self._store.reading() as session:
            return _shown(find(session, QuotaRow, name), used_by(session, name))

    def list(self) -> list[QuotaView]:
        with self._store.reading() as session:
            rows = session.scalars(select(QuotaRow).order_by(QuotaRow.name)).all()
            used = used_by_each(session, {row.name for row in rows})
            return [_shown(row, used[row.name]) for row in rows]

    def delete(self, name: str) -> None:
        with self._store.transaction() as session:
            session.delete(find(session, QuotaRow, name))


def _shown(row: QuotaRow, used: Amounts) -> QuotaView:
    return row.view().model_copy(update={f"used_{counted}": used[counted] for counted in COUNTED})
