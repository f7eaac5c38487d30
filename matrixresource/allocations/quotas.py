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
QUOTA_RESOURCES = ("npus", "cpus", "memory_gib")


class QuotaRow(ResourceRow, Base):
    """One project's limits, keyed by the project's name."""

    __tablename__ = "quotas"
    kind = "quota"

    limits: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)

    def view(self) -> QuotaView:
        return QuotaView(**self.common_fields(), **QuotaRequest.from_stored(self.limits).model_dump())


ResourceAmounts = dict[str, float]
"""Amounts of each of `QUOTA_RESOURCES`: NPUs (a spare counts as a whole node, since it is kept from others), sockets,
GiB."""


def project_usage(session: Session, project: str) -> ResourceAmounts:
    """What a project holds and is promised."""
    return usage_by_project(session, {project})[project]


def usage_by_project(session: Session, projects: Collection[str]) -> dict[str, ResourceAmounts]:
    """The same for each of these projects in one pass over all allocations."""
    totals = {project: dict.fromkeys(QUOTA_RESOURCES, 0.0) for project in projects}
    node_npus = npus_of_node(session)
    current = (row for row in all_rows(session, AllocationRow) if row.project in totals)
    promised = (row for row in active_reservations(session) if row.promised and row.project in totals)
    usage = [(row.project, _allocated(row, node_npus)) for row in current]
    usage += [(row.project, requested_usage(row.spec(), node_npus)) for row in promised]
    for project, amounts in usage:
        for resource in QUOTA_RESOURCES:
            totals[project][resource] += amounts[resource]
    return totals


def requested_usage(request: AllocationRequest, node_npus: int) -> ResourceAmounts:
    """What a request counts for, with `node_npus` NPUs in a node."""
    nodes, npus_per_node = member_size(request, node_npus)
    return {
        "npus": nodes * npus_per_node + request.spares * node_npus,
        "cpus": request.cpus,
        "memory_gib": request.memory_gib,
    }


def _allocated(row: AllocationRow, node_npus: int) -> ResourceAmounts:
    """What an allocation counts for; while it moves, the larger of its old and new size.

    Its members may differ in size after others have drawn on it.
    """
    if row.state == "Releasing":
        return dict.fromkeys(QUOTA_RESOURCES, 0.0)
    request = row.spec()
    present = {"npus": row.npus + row.spares * node_npus, "cpus": request.cpus, "memory_gib": request.memory_gib}
    target = (
        present if row.moving_to is None else requested_usage(AllocationRequest.from_stored(row.moving_to), node_npus)
    )
    return {resource: max(present[resource], target[resource]) for resource in QUOTA_RESOURCES}


def check_quota(session: Session, request: AllocationRequest, allocation: AllocationRow | None = None) -> None:
    """Raises QuotaExceeded if the project would exceed its limits; `allocation` is the one that the request would
    change.

    A project above limits that were lowered may keep what it has, take less, and use what was promised to it before:
    only additions to what it holds and is promised are refused.
    """
    row = session.get(QuotaRow, request.project)
    if row is None:
        return
    limits, used = QuotaRequest.from_stored(row.limits), project_usage(session, request.project)
    node_npus = npus_of_node(session)
    before = dict.fromkeys(QUOTA_RESOURCES, 0.0) if allocation is None else _allocated(allocation, node_npus)
    moved = _already_reserved(session, request, node_npus)
    blocking, sentences = list[dict[str, Any]](), list[str]()
    for resource, amount in requested_usage(request, node_npus).items():
        counted_already = before[resource] + min(moved[resource], amount)
        others = used[resource] - counted_already
        limit = getattr(limits, resource)
        if limit is not None and amount > counted_already and others + amount > limit:
            text = {"npus": "NPUs", "cpus": "CPU sockets", "memory_gib": "GiB"}[resource]
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


def _already_reserved(session: Session, request: AllocationRequest, node_npus: int) -> ResourceAmounts:
    """What the project already holds in the reservation that the request draws on; only the rest is new."""
    allocation = session.get(AllocationRow, request.reservation) if request.reservation is not None else None
    is_own = allocation is not None and allocation.project == request.project
    return (
        _allocated(allocation, node_npus) if allocation is not None and is_own else dict.fromkeys(QUOTA_RESOURCES, 0.0)
    )


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
            used = project_usage(session, name)
        return _view_with_usage(row, used)

    def get(self, name: str) -> QuotaView:
        with self._store.reading() as session:
            return _view_with_usage(find(session, QuotaRow, name), project_usage(session, name))

    def list(self) -> list[QuotaView]:
        with self._store.reading() as session:
            rows = session.scalars(select(QuotaRow).order_by(QuotaRow.name)).all()
            used = usage_by_project(session, {row.name for row in rows})
            return [_view_with_usage(row, used[row.name]) for row in rows]

    def delete(self, name: str) -> None:
        with self._store.transaction() as session:
            session.delete(find(session, QuotaRow, name))


def _view_with_usage(row: QuotaRow, used: ResourceAmounts) -> QuotaView:
    return row.view().model_copy(update={f"used_{resource}": used[resource] for resource in QUOTA_RESOURCES})
