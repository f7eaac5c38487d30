"""Tables of MatrixCompute: instances, their workflows, faults, scaling policies and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import JSON, Float, Integer, String, Text, bindparam, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from matrixcommon.model.empty import empty_list
from matrixcommon.model.event_view import EventView
from matrixcommon.model.quantities import parse_timestamp, timestamp
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of
from matrixcommon.persistence.database_session import ResourceRow, Store, find, journal_tables
from matrixcommon.persistence.fences import leader_table
from matrixcommon.persistence.resource_row import EventColumns
from matrixcommon.workflows.contract import OperationRecord
from matrixcommon.workflows.rows import WorkflowDrainRow, WorkflowRow, delete_ended_workflows, open_workflows
from matrixcompute.autoscaling.policy import PoolSizes, ScalingPolicyRequest, ScalingPolicySpec
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.contract import (
    DetectedFault,
    InstanceRequest,
    InstanceShape,
    InstanceView,
    RecoveryTimes,
    Reliability,
    RungView,
)
from matrixcompute.model.member_health import health_events
from matrixcompute.model.observation import Observed, conditions_of, not_ready_reason
from matrixcompute.model.states import INSTANCE_STATES, UNREADY
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.recovery.policy import Recovery
from matrixcompute.recovery.times import DownTime, parts_so_far
from matrixcompute.store.declared import DeclaredRow
from matrixresource.contract.allocations import AllocationView


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)
leader_table(Base.metadata)


class InstanceRow(ResourceRow, Base):
    """One instance: its spec (`spec`, `generation`) and its last observed state."""

    __tablename__ = "instances"
    kind = "instance"
    MOVES = INSTANCE_STATES

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    applied: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    observed_generation: Mapped[int] = mapped_column(Integer, default=0)
    operation: Mapped[str | None] = mapped_column(String(253))
    members: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    slices: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    ready_nodes: Mapped[int] = mapped_column(Integer, default=0)
    npus: Mapped[int] = mapped_column(Integer, default=0)
    """The NPUs of its members, as counted by MatrixResource."""
    repairs: Mapped[int] = mapped_column(Integer, default=0)
    last_recovery: Mapped[dict[str, float] | None] = mapped_column(JSON)
    """The parts of the last recovery (`recovery.times`), s."""
    down_time: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The `DownTime`, in its wire form."""
    retry_at: Mapped[float] = mapped_column(Float, default=0.0)
    leaving: Mapped[list[str] | None] = mapped_column(JSON)
    """The members that the current spec removes, if the request named them."""
    expires_at: Mapped[float | None] = mapped_column(Float)
    """When its lease ends, as last reported by MatrixResource (s)."""
    refused_generation: Mapped[int | None] = mapped_column(Integer)
    """The generation that was permanently refused: it is not retried until `:retry` or another spec."""
    cancelled: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The `CancelledChange`, until another spec is requested."""
    scaling_policy: Mapped[str | None] = mapped_column(String(127))
    """The key of the scaling policy that sizes it."""
    node_waits: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The `NodeWaits` for its new members, in their wire form."""

    @property
    def shape(self) -> InstanceRequest:
        return InstanceRequest.from_stored(self.spec)

    @property
    def last_active(self) -> InstanceRequest | None:
        """The last active shape; None if there never was one."""
        return InstanceRequest.from_stored(self.applied) if self.applied else None

    def last_active_with_power(self) -> InstanceRequest | None:
        """The last active shape with the power of the spec; None if the spec changes nothing but the power, or if no
        shape was ever active."""
        if (applied := self.last_active) is None:
            return None
        switched = applied.model_copy(update={"power": self.shape.power, "labels": self.shape.labels})
        return switched if switched != self.shape else None

    def missing_members(self, allocation: AllocationView | None) -> int:
        """How many members it lacks because there were no nodes. Members added by a changed spec do not count."""
        applied, present = self.last_active, active_or_none(allocation)
        return 0 if applied is None or present is None else max(0, min(applied.nodes, self.shape.nodes) - present.nodes)

    @property
    def desired_spares(self) -> int:
        """How many spares it should have, including those left out while members were missing."""
        return 0 if self.last_active is None else min(self.last_active.spares, self.shape.spares)

    def is_reduced(self, allocation: AllocationView | None) -> bool:
        """Whether it lacks members, or the spares that were left out with them."""
        present = active_or_none(allocation)
        return present is not None and (self.missing_members(present) > 0 or present.spares < self.desired_spares)

    def enter(self, state: str, now: float) -> None:
        """Move to that state, and update the condition Ready at once."""
        self.move(state)
        ready = self.find_condition("Ready")
        if ready is None or (ready["status"] == "True" and state not in UNREADY):
            return
        reported = (self.find_condition(type) for type in ("NodesReady", "LinksReady"))
        lacking = [each["message"] for each in reported if each is not None and each["status"] != "True"]
        self.set_condition("Ready", False, *not_ready_reason(state, lacking), now)

    def observe(self, observed: Observed, recovery: Recovery | None, now: float) -> None:
        """Record what MatrixResource and MatrixLink show, and update the conditions. `recovery`: None before recovery
        has been decided, which leaves Degraded unchanged."""
        allocation = observed.allocation
        self.ready_nodes = observed.ready_nodes
        self.members = [m.wire() for m in allocation.members] if allocation is not None else []
        self.slices = [each.wire() for each in observed.slices]
        self.npus = int(allocation.npus) if allocation is not None else 0
        if (current := active_or_none(allocation)) is not None:
            self.expires_at = parse_timestamp(current.expires_at) if current.expires_at else None
        self.conditions = conditions_of(
            self.conditions or [],
            observed,
            recovery,
            state=self.state,
            shape=self.shape,
            nodes=self.shape.nodes if allocation is None else allocation.nodes + self.missing_members(allocation),
            spares=self.desired_spares,
            generation=self.generation,
            now=now,
        )

    @property
    def down(self) -> DownTime:
        return DownTime.from_stored(self.down_time or {})

    def reliability(self, now: float) -> Reliability:
        down = self.down
        means = {part: seconds / down.recoveries for part, seconds in down.parts_s.items() if down.recoveries}
        return Reliability(
            name=name_of(self.name),
            project=self.project,
            since=None if down.since is None else timestamp(down.since),
            recoveries=down.recoveries,
            mttr_s=None if down.mttr_s is None else round(down.mttr_s, 3),
            means=times_view(means),
            down_s=round(down.down_until(now), 3),
            ettr=None if (ettr := down.ettr(now)) is None else round(ettr, 6),
        )

    def view(self) -> InstanceView:
        shape = self.shape
        spec_fields = {field: getattr(shape, field) for field in InstanceShape.model_fields if field != "project"}
        return self.view_as(
            InstanceView,
            **spec_fields,
            expires_at=timestamp(self.expires_at) if self.expires_at else None,
            last_recovery=times_view(self.last_recovery),
            allocation=name_of(self.name),
            operation=name_of(self.operation) if self.operation else None,
            scaling_policy=name_of(self.scaling_policy) if self.scaling_policy else None,
        )


class OperationRow(WorkflowRow, Base):
    """One run of a workflow over an instance.

    It carries out one spec: `shape`, as it was when the workflow was opened, and its generation `spec_generation`. A
    newer spec needs another workflow.
    """

    __tablename__ = "operations"

    spec_generation: Mapped[int] = mapped_column(Integer, default=0)
    shape: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    recovery: Mapped[dict[str, float] | None] = mapped_column(JSON)
    """The parts of the recovery that it carried out (`recovery.times`), once that is complete, s."""
    rungs: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON)
    """In a repair, a `RungTried` for each rung that was begun, in order, in wire form."""

    def view(self) -> InstanceOperation:
        return self.view_of(
            InstanceOperation,
            recovery=times_view(self.recovery or self.recovery_so_far()),
            rungs=[RungView(**each.model_dump(exclude={"at"}), at=timestamp(each.at)) for each in self.rungs_tried],
        )

    @property
    def rungs_tried(self) -> list[RungTried]:
        return [RungTried.from_stored(each) for each in self.rungs or []]

    def failed_since(self) -> tuple[float, float] | None:
        """In a recovery, when its members failed and when that was detected (s)."""
        parameters = self.parameters or {}
        if "failedAt" not in parameters:
            return None
        return parse_timestamp(parameters["failedAt"]), parse_timestamp(parameters["detectedAt"])

    def recovery_so_far(self) -> dict[str, float] | None:
        since = self.failed_since()
        return None if since is None else parts_so_far(*since, self.trace or {})


class WorkflowDrains(WorkflowDrainRow, Base):
    """Drains of this service's workflow engine."""

    __tablename__ = "workflow_drains"


def times_view(parts: Mapping[str, float] | None) -> RecoveryTimes | None:
    """The parts of a recovery as shown in views."""
    if not parts:
        return None
    shown = {f"{part}_s": round(seconds, 3) for part, seconds in parts.items()}
    return RecoveryTimes(**shown, total_s=round(sum(parts.values()), 3))


class InstanceOperation(OperationRecord):
    """An operation on an instance."""

    recovery: RecoveryTimes | None = Field(None, description="of a repair: how long each part took, as far as it is")
    rungs: list[RungView] = Field(
        default_factory=empty_list, description="of a repair: what was tried, member by member"
    )


class FaultRow(ResourceRow, Base):
    """A fault on a node, as last shown by MatrixResource. `instance`: the key of the instance that holds the node."""

    __tablename__ = "faults"
    kind = "fault"

    node: Mapped[str] = mapped_column(String(63), index=True)
    component: Mapped[str] = mapped_column(String(40))
    code: Mapped[str] = mapped_column(String(40))
    level: Mapped[str] = mapped_column(String(20))
    action: Mapped[str] = mapped_column(String(12))
    since: Mapped[str] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text, default="")
    raised_by: Mapped[str | None] = mapped_column(String(20))
    instance: Mapped[str | None] = mapped_column(String(127))

    def view(self) -> DetectedFault:
        return self.view_as(DetectedFault)


class ScalingPolicyRow(DeclaredRow, Base):
    """A scaling policy and its last decision. `target`: an instance's key; at most one policy per target."""

    __tablename__ = "scaling_policies"
    kind = "scaling policy"

    target: Mapped[str] = mapped_column(String(127), unique=True)
    current_replicas: Mapped[int] = mapped_column(Integer, default=0)
    desired_replicas: Mapped[int] = mapped_column(Integer, default=0)
    desired_pools: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """The `PoolSizes` decided for the nodes of the target's spec, in wire form. All zero: the target is suspended until
    a request waits."""
    forecast_replicas: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text, default="")
    last_scale_at: Mapped[float | None] = mapped_column(Float)
    decisions: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    draining: Mapped[list[str] | None] = mapped_column(JSON)
    """The members that were chosen to leave, from before they are drained until they have left."""

    @property
    def policy(self) -> ScalingPolicyRequest:
        return ScalingPolicyRequest.from_stored(self.spec)

    @property
    def sizes(self) -> PoolSizes | None:
        return None if self.desired_pools is None else PoolSizes.from_stored(self.desired_pools)

    @property
    def scaled_to_zero(self) -> bool:
        """Whether its target is scaled to zero."""
        return self.sizes is not None and not self.sizes.nodes

    def view(self) -> ScalingPolicyView:
        policy = self.policy.shown_to(self.project or DEFAULT_PROJECT)
        spec_fields = {field: getattr(policy, field) for field in ScalingPolicySpec.model_fields if field != "project"}
        last = timestamp(self.last_scale_at) if self.last_scale_at else None
        return self.view_as(ScalingPolicyView, **spec_fields, last_scale_time=last)


class ScalingMemoryRow(Base):
    """The `ScalingState` of a policy. It changes with every tick, so it is not part of the watched resource."""

    __tablename__ = "scaling_memories"

    policy: Mapped[str] = mapped_column(String(253), primary_key=True)
    state: Mapped[dict[str, Any]] = mapped_column(JSON)


class EventRow(EventColumns, ResourceRow, Base):
    """An event of an instance, as text."""

    __tablename__ = "events"
    kind = "event"

    about: Mapped[str] = mapped_column(String(127), index=True)
    """Key of the instance."""

    def view(self) -> Any:
        return EventView(about=name_of(self.about), **self.common_fields(), **self.described())


INSTANCES = select(InstanceRow).order_by(InstanceRow.name)
_SCALING_POLICIES = select(ScalingPolicyRow).order_by(ScalingPolicyRow.name)
_NEWEST_EVENT = (
    select(EventRow)
    .where(EventRow.about == bindparam("about"))
    .order_by(EventRow.at.desc(), EventRow.name.desc())
    .limit(1)
)


class ComputeStore(Store):
    """Instances, workflows and events."""

    def instance(self, session: Session, name: str) -> InstanceRow:
        return find(session, InstanceRow, name)

    def instances(self, session: Session) -> list[InstanceRow]:
        return list(session.scalars(INSTANCES))

    def instance_versions(self) -> dict[str, int]:
        """The version of each instance, by key."""
        return self.records.cached_query(
            InstanceRow, "versions", lambda session: {each.name: each.version for each in self.instances(session)}
        )

    def operation(self, session: Session, instance: InstanceRow) -> OperationRow:
        """The newest operation on an instance."""
        return find(session, OperationRow, instance.operation or "")

    def scaling_policies(self, session: Session) -> list[ScalingPolicyRow]:
        return list(session.scalars(_SCALING_POLICIES))

    def policy_of(self, session: Session, target: str) -> ScalingPolicyRow | None:
        """The scaling policy of that instance."""
        return session.scalars(select(ScalingPolicyRow).where(ScalingPolicyRow.target == target)).first()

    def open_operations(self, session: Session, target: str | None = None) -> list[OperationRow]:
        return open_workflows(session, OperationRow, target)

    def events(self, session: Session) -> list[EventRow]:
        return list(session.scalars(select(EventRow).order_by(EventRow.at)))

    def record_event(
        self,
        session: Session,
        instance: str,
        reason: str,
        message: str,
        at: float,
        type: Literal["Normal", "Warning"] = "Normal",
    ) -> None:
        """Record an event, unless it repeats the instance's newest one."""
        newest = session.scalars(_NEWEST_EVENT, {"about": str(instance)}).first()
        if newest is None or (newest.reason, newest.message) != (reason, message):
            EventRow.note(session, at, type, reason, message, about=instance, project=project_of(instance))

    def observe(
        self, session: Session, instance: InstanceRow, observed: Observed, recovery: Recovery | None, now: float
    ) -> None:
        """Record what is observed of an instance, and events of members that began to work with a fault, or ceased."""
        members = observed.allocation.members if observed.allocation is not None else ()
        for event in health_events(instance.members or (), members):
            self.record_event(session, instance.name, event.reason, event.message, now, event.type)
        instance.observe(observed, recovery, now)

    def delete_before(self, session: Session, at: float) -> int:
        """Delete events and finished operations older than `at`. Returns how many."""
        old = list(session.scalars(select(EventRow).where(EventRow.at < at)))
        for row in old:
            session.delete(row)
        return len(old) + delete_ended_workflows(session, OperationRow, at)
