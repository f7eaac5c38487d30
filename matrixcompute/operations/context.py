"""StepContext: what the steps over an instance are given; and InstanceHost, which gives it to the workflow engine."""

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
from matrixcommon.workflows.host import Host, Unreadable
from matrixcommon.workflows.progress import noted, start_of
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
AS_LAST_ACTIVE = (REPAIR, RELOCATE, RESTORE, RESTORE_SLICES, RESTART)
"""Verbs that bring back what last was active, whatever has been requested since."""
BESIDE = "beside"
"""The parameter of a workflow that carries what last was active while a changed spec, of this generation, waits."""
LEAVING = "leaving"
"""The parameter of a workflow whose spec names members to go: who drained those is not asked again for a newer spec."""
SUSPEND = "suspend-instance"


@dataclass
class StepContext:
    """What a step is given: whose workflow it is, the shape and generation it carries, and the ports."""

    operation: str
    instance: str
    shape: InstanceRequest
    spec_generation: int
    neighbours: ControlPlane
    store: ComputeStore
    clock: Clock
    policy: RecoveryPolicy
    parameters: dict[str, str] = field(default_factory=dict)
    inference: Inference | None = None
    """What serves on instances; None where no CloudMatrix-Infer is configured."""

    def applied(self) -> InstanceRequest | None:
        """The shape that last was active; None where none ever was."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).last_active

    @property
    def asked_generation(self) -> int:
        """The newest generation that there was when this workflow was opened."""
        return int(self.parameters.get(BESIDE, self.spec_generation))

    def newest(self) -> int:
        """The generation that is requested now."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).generation

    def leaving(self) -> list[str]:
        """The members that the spec which this workflow carries names as those to go."""
        if (named := self.parameters.get(LEAVING)) is not None:
            return named.split()
        with self.store.reading() as session:
            instance = self.store.instance(session, self.instance)
            # One from before workflows carried these brings the present spec.
            return list(instance.leaving or []) if instance.generation == self.spec_generation else []

    def since(self, step: str) -> float:
        """When that step of this workflow was begun (s); now where it was not."""
        return float(self._traced(step).get("startedAt", self.clock.now()))

    def undone_since(self, step: str) -> float:
        """When it was begun to undo that step of this workflow (s); now where it was not."""
        return float(self._traced(step).get(start_of("Undoing"), self.clock.now()))

    def failures(self, step: str) -> int:
        """How often that step of this workflow has failed."""
        return int(self._traced(step).get("attempts", 0))

    def _traced(self, step: str) -> dict[str, Any]:
        with self.store.reading() as session:
            row = session.get(OperationRow, self.operation)
            return {} if row is None else (row.trace or {}).get(step, {})

    def informed(self) -> set[str]:
        """Of a repair, the members that were fenced and told before anything is done about them."""
        return {*self._traced("tell_workload").get("informed", ())}

    def note_informed(self, nodes: Collection[str]) -> None:
        """Keep that these were."""
        if {*nodes} <= (before := self.informed()):
            return
        with self.store.transaction() as session:
            if (row := session.get(OperationRow, self.operation)) is not None:
                row.trace = noted(row.trace, "tell_workload", informed=sorted({*nodes} | before))

    def recovery_policy(self) -> RecoveryPolicy:
        """What holds for its instance now."""
        policies = self.store.records.remembered(RecoveryPolicyRow, "by target", policies_by_target)
        return policy_of(self.instance, policies, self.policy)

    def rungs(self) -> Sequence[RungTried] | None:
        """Of a repair, what was begun for each member, in its order; None of anything else."""

        def ask(session: Session) -> Sequence[RungTried] | None:
            row = session.get(OperationRow, self.operation)
            return None if row is None or row.verb != REPAIR else row.rungs_tried

        return self.store.records.remembered(OperationRow, ("rungs", self.operation), ask)

    def note_rung(self, tried: RungTried) -> None:
        """Keep that a rung was begun, and say so."""
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
    """Workflows over instances: each carries one spec to its end."""

    row, targets, drains = OperationRow, InstanceRow, WorkflowDrains
    payload = InstanceRequest.bare_schema()

    def __init__(
        self,
        store: ComputeStore,
        neighbours: ControlPlane,
        clock: Clock,
        policy: RecoveryPolicy,
        inference: Inference | None = None,
    ) -> None:
        super().__init__(store)
        self._store = store
        self._neighbours = neighbours
        self._clock = clock
        self._policy = policy
        self._inference = inference

    def opened(self, row: OperationRow, target: InstanceRow) -> None:
        as_it_is = target.applied is not None and (row.verb in AS_LAST_ACTIVE or BESIDE in (row.parameters or {}))
        row.spec_generation = target.observed_generation if as_it_is else target.generation
        row.shape = target.applied if as_it_is and target.applied else target.spec
        if target.leaving and not as_it_is:
            row.parameters = {**(row.parameters or {}), LEAVING: " ".join(target.leaving)}
        if row.verb in (STOP, START) and (switched := target.switched()) is not None:
            row.spec_generation, row.shape = target.observed_generation, switched.wire()  # the rest follows
        target.operation = row.name

    def context(self, session: Session, row: OperationRow) -> StepContext:
        try:
            # One from before workflows carried a shape brings the present spec.
            shape = InstanceRequest.from_stored(row.shape or self._store.instance(session, row.target).spec)
        except ValidationError as wrong:
            raise Unreadable(str(wrong)) from wrong
        return StepContext(
            row.name,
            row.target,
            shape,
            row.spec_generation,
            self._neighbours,
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
        """The instance goes back to the shape that last was active; one that never was waits, without nodes, for
        `:retry` or another shape. Of a stop or a start only the power goes back: what else is asked for follows."""
        if target.applied is None or target.state not in ("Updating", "Stopping", "Starting"):
            return
        if row.verb in (STOP, START):
            given_up = target.shape.power == ("Off" if row.verb == STOP else "On")
            power = InstanceRequest.from_stored(target.applied).power
            spec, leaving = target.shape.model_copy(update={"power": power}).wire(), target.leaving
        else:
            given_up = row.spec_generation == target.generation != target.observed_generation
            spec, leaving = target.applied, None
        if given_up:
            shape = InstanceShape.from_stored(target.shape.model_dump(exclude={"labels"}))
            target.cancelled = CancelledChange(operation=name_of(row.name), shape=shape).wire()
            target.spec = {**spec, "labels": target.labels}
            target.generation += 1
            target.leaving = leaving

    def check_abandon(self, row: OperationRow, target: InstanceRow) -> None:
        if target.state in ("Deleting", "Suspending") or row.verb == YIELD_CAPACITY:
            raise Conflict(f"{row.verb} cannot be abandoned: what an instance has is given back in any case")

    def abandoned(
        self, session: Session, row: OperationRow, target: InstanceRow, reason: Abandoned, now: float
    ) -> None:
        """An instance that was being created is Failed and keeps what it has got; any other stays as it was last
        active, and its conditions say what is not so. Nothing is tried again until `:retry`, another shape or its
        deletion."""
        if target.operation != row.name:
            return
        created = target.applied is not None and target.state != "Provisioning"
        power = InstanceRequest.from_stored(target.applied).power if created else "On"
        target.enter(settled_state(power) if created else "Failed", now)
        target.retry_at = math.inf
        target.set_condition("Progressing", False, reason.reason, reason.message, now)
