"""Open workflows, together with the state that each brings the instance into, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Abandoned
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.model.composition import placement_changed
from matrixcompute.operations.context import MOVE, REPAIR, START, STOP, SUSPEND
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import Recovery, failed_since
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow
from matrixresource.contract.allocations import MemberView


def change_verb(session: Session, instance: InstanceRow) -> str:
    """The verb of the workflow that brings an instance to its spec: a move if its placement changes, or if the last
    move has not completed.

    Only MatrixResource knows how far that move got; another move finds out, and scales if nothing has to be moved. A
    refused move does not prevent switching the instance off or on in place: the two are tried in turn.
    """
    if instance.shape.suspend:
        return SUSPEND
    last = session.get(OperationRow, instance.operation or "")
    moving = last is not None and last.verb == MOVE and last.state != "Done"
    current = instance.last_active or instance.shape
    switched = instance.shape.power != current.power
    if (moving or placement_changed(instance.shape, current)) and not (switched and moving and _refused(last)):
        return MOVE
    if switched:
        return STOP if current.power == "On" else START
    return "scale-instance"


def _refused(last: OperationRow | None) -> bool:
    """Whether a workflow was refused, and so undone. An abandoned one is not undone."""
    return last is not None and last.state == "Failed" and (last.error or {}).get("reason") != Abandoned.__name__


CHANGE_STATES = {
    MOVE: ("Updating", "Moving"),
    STOP: ("Stopping", "Stopping"),
    START: ("Starting", "Starting"),
    SUSPEND: ("Suspending", "Suspending"),
}
"""The state that a change brings an instance into, and the reason of its condition Progressing. Default: Updating,
Scaling."""


def below_floor(instance: InstanceRow) -> bool:
    """Whether an instance is Failed with fewer members than its floor, since a repair found no node for the others."""
    return instance.state == "Failed" and name_of(instance.operation or "").startswith(REPAIR)


class WorkflowStarter:
    """Opens workflows, for the verbs and the reconcilers."""

    def __init__(self, store: ComputeStore, runner: WorkflowRunner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock

    def open_change(self, session: Session, instance: InstanceRow) -> None:
        verb = change_verb(session, instance)
        state, reason = CHANGE_STATES.get(verb, ("Updating", "Scaling"))
        self.open(session, verb, instance, state, reason)

    def open(
        self,
        session: Session,
        verb: str,
        instance: InstanceRow,
        state: str,
        reason: str,
        parameters: dict[str, str] | None = None,
    ) -> None:
        self._runner.open(session, verb, instance, parameters)
        now, message = self._clock.now(), f"{verb} generation {instance.generation}"
        if instance.state != state:
            # The previous change has ended, even if no pass has recorded that yet: the deadline of the new state
            # starts now.
            instance.set_condition("Progressing", False, reason, message, now)
        instance.enter(state, now)
        instance.set_condition("Progressing", True, reason, message, now)

    def open_repair(
        self,
        session: Session,
        instance: InstanceRow,
        members: Sequence[MemberView],
        recovery: Recovery,
        tried: Sequence[RungTried],
    ) -> None:
        """Open a repair of the failed members. Rungs already `tried` for them count as tried."""
        now = self._clock.now()
        self._store.record_event(session, instance.name, recovery.reason, recovery.message, now, "Warning")
        self.open(session, REPAIR, instance, "Repairing", "Repairing", _repair_parameters(members, recovery, now))
        row = self._store.operation(session, instance)
        row.rungs = [each.wire() for each in tried if each.node in recovery.affected]

    def delete(self, session: Session, instance: InstanceRow, reason: str, message: str) -> None:
        instance.generation += 1
        self._store.record_event(session, instance.name, reason, message, self._clock.now())
        self.open(session, "delete-instance", instance, "Deleting", "Deleting")

    def open_without_transition(self, session: Session, verb: str, instance: InstanceRow) -> None:
        """Open a workflow that does not change the state."""
        self._runner.open(session, verb, instance)


def _repair_parameters(members: Sequence[MemberView], recovery: Recovery, now: float) -> dict[str, str]:
    """The parameters of a repair: the nodes, when they failed as far as is known, when that was detected, and why."""
    failed_at, detected_at = failed_since(members, recovery.affected) or (timestamp(now), timestamp(now))
    nodes = ", ".join(recovery.affected)
    return {"failedAt": failed_at, "detectedAt": detected_at, "nodes": nodes, "reason": recovery.reason}
