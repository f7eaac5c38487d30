"""The tables `allocations` (who holds what) and `assignments` (what each node's agent is to do)."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import JSON, BigInteger, Boolean, Float, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from matrixcommon.persistence.database_session import ResourceRow
from matrixcommon.telemetry.trace import TraceContexts
from matrixresource.contract.agents import AssignmentView
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.store.allocation_states import ALLOCATION_STATES
from matrixresource.store.tables import Base

TRACES = TraceContexts()
"""The trace in which an allocation was last requested."""


class AssignmentRow(ResourceRow, Base):
    """What is requested of one node's agent; agents watch these."""

    __tablename__ = "assignments"
    kind = "assignment"

    desired_role: Mapped[str] = mapped_column(String(10), default="Clean")
    allocation: Mapped[str | None] = mapped_column(String(127))
    rank: Mapped[int | None] = mapped_column(Integer)
    power: Mapped[str] = mapped_column(String(10), default="On", server_default="On")
    task: Mapped[str | None] = mapped_column(String(10))
    task_generation: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """The generation that the task belongs to: an agent does it once. `firmware` is for the task update."""
    firmware: Mapped[str | None] = mapped_column(String(80))
    parts: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    """What is requested of parts of the node: one `DesiredPartition` each, in wire form."""

    def view(self) -> AssignmentView:
        return self.view_as(AssignmentView, traceparent=TRACES.get(self.allocation))


class AllocationRow(ResourceRow, Base):
    """One allocation and its spec. Its members are the nodes whose holder it is."""

    __tablename__ = "allocations"
    kind = "allocation"
    MOVES = ALLOCATION_STATES
    REUSES_VIEW = True

    nodes: Mapped[int] = mapped_column(Integer)
    spares: Mapped[int] = mapped_column(Integer)
    npus: Mapped[float] = mapped_column(Float)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The spec as last granted, without labels."""
    moving_to: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The spec of the move in progress."""
    expires_at: Mapped[float | None] = mapped_column(Float)
    topology_version: Mapped[str] = mapped_column(String(200))
    bound: Mapped[bool] = mapped_column(Boolean, default=False)
    power: Mapped[str] = mapped_column(String(10), default="On", server_default="On")
    members: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    preempts: Mapped[list[str]] = mapped_column(JSON, default=list)
    """The allocations it preempted."""

    def spec(self) -> AllocationRequest:
        """The spec, parsed once; read-only."""
        text, read = self.__dict__.get("_read", (None, None))
        if read is None or text is not self.request:
            read = AllocationRequest.from_stored(self.request)
            self.__dict__["_read"] = self.request, read
        return cast(AllocationRequest, read)

    def view(self) -> AllocationView:
        request, project = self.spec(), self.project or DEFAULT_PROJECT
        return self.view_as(
            AllocationView,
            request=request.request_for(project),
            npus_per_node=request.npus_per_node,
            cpus=request.cpus or None,
            memory_gib=request.memory_gib or None,
            placement=request.placement,
            affinity=request.affinity and request.affinity.shown_to(project),
            anti_affinity=request.anti_affinity and request.anti_affinity.shown_to(project),
            priority=request.priority,
            preemption=request.preemption,
            expires_at=None if self.expires_at is None else timestamp(self.expires_at),
        )

    def shown(self) -> AllocationView:
        return cast(AllocationView, super().shown())
