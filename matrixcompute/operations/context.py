"""StepContext: the context of steps over an instance; and InstanceHost, which provides it to the workflow engine."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Abandoned, Conflict
from matrixcommon.model.resource_key import name_of
from matrixcommon.model.validation import validation_message
from matrixcommon.workflows.host import Host, UnreadablePayload
from matrixcommon.workflows.progress import start_field, with_entry
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.contract import CancelledChange, InstanceRequest, InstanceShape
from matrixcompute.model.states import settled_state
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.recovery_policies import RecoveryPolicyRow, policies_by_target, policy_of
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow, WorkflowDrains

REPAIR, MOVE, YIELD_CAPACITY, RELOCATE = "replace-node", "move-instance", "yield-capacity", "relocate-member"
RESTORE, RESTORE_SLICES = "restore-members", "restore-slices"
STOP, START, RESTART = "stop-instance", "start-instance", "restart-instance"
LAST_ACTIVE_VERBS = (REPAIR, RELOCATE, RESTORE, RESTORE_SLICES, RESTART)
"""Verbs that restore the last active shape, whatever has been requested since."""
PENDING_GENERATION = "beside"
"""The parameter of a workflow that carries the last active shape while a changed spec waits: that spec's generation."""
LEAVING = "leaving"
"""The parameter of a workflow whose spec names the members to remove, which have been drained: a newer spec does not
change them."""
SUSPEND = "suspend-instance"


@dataclass
class StepContext:
    """The context of a step: its workflow and instance, the shape and generation that it carries out, and the ports."""

    operation: str
    instance: str
    shape: InstanceRequest
    spec_generation: int
    control_plane: ControlPlane
    store: ComputeStore
    clock: Clock
    policy: RecoveryPolicy
    parameters: dict[str, str] = field(default_factory=dict)
    inference: Inference | None = None
    """The inference service on instances; None if no CloudMatrix-Infer is configured."""

    def applied(self) -> InstanceRequest | None:
        """The last active shape; None if there never was one."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).last_active

    @property
    def requested_generation(self) -> int:
        """The newest generation at the time this workflow was opened."""
        return int(self.parameters.get(PENDING_GENERATION, self.spec_generation))

    def current_generation(self) -> int:
        """The instance's current generation."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).generation

    def leaving(self) -> list[str]:
        """The members that this workflow's spec names for removal."""
        if (named := self.parameters.get(LEAVING)) is not None:
            return named.split()
        with self.store.reading() as session:
            instance = self.store.instance(session, self.instance)
            # A workflow of an earlier release has no such parameter, and carries out the current spec.
            return list(instance.leaving or []) if instance.generation == self.spec_generation else []

    def started_at(self, step: str) -> float:
        """When that step of this workflow began (s); the current time if it has not."""
        return float(self._step_trace(step).get("startedAt", self.clock.now()))

    def undo_started_at(self, step: str) -> float:
        """When the undo of that step of this workflow began (s); the current time if it has not."""
        return float(self._step_trace(step).get(start_field("Undoing"), self.clock.now()))

    def failures(self, step: str) -> int:
        """How often that step of this workflow has failed."""
        return int(self._step_trace(step).get("attempts", 0))

    def _step_trace(self, step: str) -> dict[str, Any]:
        with self.store.reading() as session:
            row = session.get(OperationRow, self.operation)
            return {} if row is None else (row.trace or {}).get(step, {})

    def notified(self) -> set[str]:
        """The members of a repair that were fenced and notified, which comes before any other action."""
        return {*self._step_trace("tell_workload").get("informed", ())}

    def record_notified(self, nodes: Collection[str]) -> None:
        """Record that these members were fenced and notified."""
        if {*nodes} <= (before := self.notified()):
            return
        with self.store.transaction() as session:
            if (row := session.get(OperationRow, self.operation)) is not None:
                row.trace = with_entry(row.trace, "tell_workload", informed=sorted({*nodes} | before))

    def recovery_policy(self) -> RecoveryPolicy:
        """The recovery policy that applies to its instance now."""
        policies = self.store.records.cached_query(RecoveryPolicyRow, "by target", policies_by_target)
        return policy_of(self.instance, policies, self.policy)

    def rungs(self) -> Sequence[RungTried] | None:
        """The rungs begun in a repair, in order; None for any other workflow."""

        def read_rungs(session: Session) -> Sequence[RungTried] | None:
            row = session.get(OperationRow, self.operation)
            return None if row is None or row.verb != REPAIR else row.rungs_tried

        return self.store.records.cached_query(OperationRow, ("rungs", self.operation), read_rungs)

    def record_rung(self, tried: RungTried) -> None:
        """Record that a rung was begun, and emit an event."""
        with self.store.transaction() as session:
            row = session.get(OperationRow, self.operation)
            if row is not None:
                row.rungs = [*(row.rungs or []), tried.wire()]
            message = f"{tried.node}: {tried.rung}, since {tried.why}"
            self.store.record_event(session, self.instance, "RepairBegun", message, tried.at, "Warning")

    def record_event(self, reason: str, message: str, warning: bool = False) -> None:
        with self.store.transaction() as session:
            self.store.record_event(
                session, self.instance, reason, message, self.clock.now(), "Warning" if warning else "Normal"
            )


class InstanceHost(Host[StepContext, OperationRow]):
    """Hosts workflows over instances; each carries out one spec."""

    row, targets, drains = OperationRow, InstanceRow, WorkflowDrains
    payload = InstanceRequest.schema_without_prose()

    def __init__(
        self,
        store: ComputeStore,
        control_plane: ControlPlane,
        clock: Clock,
        policy: RecoveryPolicy,
        inference: Inference | None = None,
    ) -> None:
        super().__init__(store)
        self._store = store
        self._control_plane = control_plane
        self._clock = clock
        self._policy = policy
        self._inference = inference

    def opened(self, row: OperationRow, target: InstanceRow) -> None:
        uses_applied_shape = target.applied is not None and (
            row.verb in LAST_ACTIVE_VERBS or PENDING_GENERATION in (row.parameters or {})
        )
        row.spec_generation = target.observed_generation if uses_applied_shape else target.generation
        row.shape = target.applied if uses_applied_shape and target.applied else target.spec
        if target.leaving and not uses_applied_shape:
            row.parameters = {**(row.parameters or {}), LEAVING: " ".join(target.leaving)}
        if row.verb in (STOP, START) and (switched := target.last_active_with_power()) is not None:
            row.spec_generation, row.shape = target.observed_generation, switched.wire()  # other changes follow
        target.operation = row.name

    def context(self, session: Session, row: OperationRow) -> StepContext:
        try:
            # A workflow of an earlier release has no shape, and carries out the current spec.
            shape = InstanceRequest.from_stored(row.shape or self._store.instance(session, row.target).spec)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(step) for step in first["loc"])
            raise UnreadablePayload(f"{field}: {validation_message(first)}") from error
        return StepContext(
            row.name,
            row.target,
            shape,
            row.spec_generation,
            self._control_plane,
            self._store,
            self._clock,
            self._policy,
            dict(row.parameters or {}),
            self._inference,
        )

    def record_event(
        self, session: Session, row: OperationRow, reason: str, message: str, at: float, warning: bool = False
    ) -> None:
        self._store.record_event(session, row.target, reason, message, at, "Warning" if warning else "Normal")

    def cancelled(self, session: Session, row: OperationRow, target: InstanceRow) -> None:
        """Return the instance to its last active shape; one without waits, without nodes, for `:retry` or another
        shape. Cancelling a stop or start reverts only the power: other changes of the spec follow."""
        if target.applied is None or target.state not in ("Updating", "Stopping", "Starting"):
            return
        if row.verb in (STOP, START):
            reverts = target.shape.power == ("Off" if row.verb == STOP else "On")
            power = InstanceRequest.from_stored(target.applied).power
            spec, leaving = target.shape.model_copy(update={"power": power}).wire(), target.leaving
        else:
            reverts = row.spec_generation == target.generation != target.observed_generation
            spec, leaving = target.applied, None
        if reverts:
            shape = InstanceShape.from_stored(target.shape.model_dump(exclude={"labels"}))
            target.cancelled = CancelledChange(operation=name_of(row.name), shape=shape).wire()
            target.spec = {**spec, "labels": target.labels}
            target.generation += 1
            target.leaving = leaving

    def check_abandon(self, row: OperationRow, target: InstanceRow) -> None:
        if target.state in ("Deleting", "Suspending") or row.verb == YIELD_CAPACITY:
            raise Conflict(f"{row.verb} cannot be abandoned: what an instance has is given back in any case")

    def on_abandoned(
        self, session: Session, row: OperationRow, target: InstanceRow, reason: Abandoned, now: float
    ) -> None:
        """An instance that was being created becomes Failed and keeps what it has; any other settles in the state of
        its last active shape, and its conditions show what differs. Nothing is retried until `:retry`, another shape or
        deletion."""
        if target.operation != row.name:
            return
        created = target.applied is not None and target.state != "Provisioning"
        power = InstanceRequest.from_stored(target.applied).power if created else "On"
        target.enter(settled_state(power) if created else "Failed", now)
        target.retry_at = math.inf
        target.set_condition("Progressing", False, reason.reason, reason.message, now)
