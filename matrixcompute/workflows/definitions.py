"""The workflows over an instance, each a list of steps before it is code."""

from __future__ import annotations

import math
from dataclasses import replace

from sqlalchemy.orm import Session

from matrixcommon.model.errors import BelowFloor, Cancelled, MatrixError, StaleGeneration
from matrixcommon.workflows.workflow import Step, Workflow
from matrixcompute.model.retries import RETRY_S
from matrixcompute.model.states import settled_state
from matrixcompute.operations.context import (
    MOVE,
    RELOCATE,
    REPAIR,
    RESTART,
    RESTORE,
    RESTORE_SLICES,
    START,
    STOP,
    SUSPEND,
    YIELD_CAPACITY,
)
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.recovery_policies import policies_by_target, policy_of
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixcompute.workflows import (
    marking_steps,
    moving_steps,
    repairing_steps,
    restoring_steps,
    steps,
    workload_steps,
)

# ---- when one is refused for good -----------------------------------------------------------------------------------


def _hopeless(refused: MatrixError) -> bool:
    """Whether no waiting helps. Whom it is to lie near to may still come."""
    return refused.final and not (refused.field or "").startswith(("affinity", "antiAffinity"))


def _waits_for_room(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    instance.enter("Failed" if _hopeless(refused) else "Pending", now)
    # Who cancelled it does not want it tried again: it waits for `:retry` or another shape.
    instance.retry_at = math.inf if isinstance(refused, Cancelled) else now + RETRY_S
    if instance.expires_at is not None and instance.expires_at > now:
        instance.expires_at = None  # what it held is given back, and with it the lease
    for condition in ("Scheduled", "Progressing"):
        instance.set_condition(condition, False, refused.reason, refused.message, now)


def _kept_as_it_was(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    below = isinstance(refused, BelowFloor) and instance.state == "Repairing"
    instance.enter("Failed" if below else settled_state((instance.last_active or instance.shape).power), now)
    instance.retry_at = 0.0 if isinstance(refused, (Cancelled, StaleGeneration)) else now + RETRY_S
    message = refused.message
    if _hopeless(refused):
        carried = session.get(OperationRow, instance.operation or "")
        if carried is not None and carried.spec_generation == instance.generation:
            instance.refused_generation = instance.generation
            message = f"{message}; it stays as it was until `:retry` or another spec"
    instance.set_condition("Progressing", False, refused.reason, message, now)


def _repair_refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    _kept_as_it_was(session, instance, refused, now)
    if policy_of(instance.name, policies_by_target(session), RecoveryPolicy()).stops:
        instance.retry_at = math.inf
        message = f"{refused.message}; it waits for `:retry`"
        instance.set_condition("Progressing", False, "RecoveryStopped", message, now)


def _restore_refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    _kept_as_it_was(session, instance, refused, now)
    if isinstance(refused, Cancelled):
        instance.retry_at = math.inf


def _taken_up_again(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    """The watcher opens it again. Of who yields, what is left is revoked when it is created anew, or as an orphan."""
    instance.retry_at = 0.0


# ---- the workflows --------------------------------------------------------------------------------------------------

TO_ACTIVE = (Step(steps.program_routes), Step(repairing_steps.await_ready), Step(marking_steps.mark_active))
"""How every workflow that brings an instance to a shape ends."""

DRAIN = Step(workload_steps.drain_members, deadline_s=90_000.0)
"""As long as a drain may be asked for (a day), and somewhat more."""

DRAINING_S = 97_200.0
"""A workflow in which members drain may take as long as that, and two hours like any other."""

DRAINED = (
    Step(workload_steps.await_loaded, undo=workload_steps.leave_successors),
    Step(workload_steps.tell_workload, undo=workload_steps.withdraw_drains),
    DRAIN,
)
"""Before members give their places up: what is served there uses the successors, then drains."""

CREATE_INSTANCE = Workflow(
    "create-instance",
    (
        Step(steps.reserve_nodes, undo=steps.release_nodes),
        Step(steps.admit_slices, undo=steps.withdraw_slices),
        Step(steps.bind_nodes),
        *TO_ACTIVE,
    ),
    refused=_waits_for_room,
    committed_at="mark_active",
)
"""Refused anywhere, everything before it is given back."""

SCALE_INSTANCE = Workflow(
    "scale-instance",
    (
        Step(steps.reserve_nodes, undo=steps.restore_shape),
        Step(steps.admit_slices),
        Step(steps.bind_nodes),
        *TO_ACTIVE,
    ),
    refused=_kept_as_it_was,
    committed_at="mark_active",
)
"""A changed shape; the rest works on."""

STOP_INSTANCE = replace(SCALE_INSTANCE, verb=STOP)
"""The nodes that there are are switched off and kept; what else the spec changes is taken up after it."""

START_INSTANCE = replace(
    SCALE_INSTANCE,
    verb=START,
    steps=(SCALE_INSTANCE.steps[0], Step(repairing_steps.make_startable), *SCALE_INSTANCE.steps[1:]),
)
"""The other way round. What broke while the nodes were off is replaced before they are switched on."""

RESTART_INSTANCE = Workflow(
    RESTART,
    (Step(steps.switch_off, undo=steps.bind_nodes), Step(steps.await_off), Step(steps.bind_nodes), *TO_ACTIVE),
    refused=_kept_as_it_was,
    committed_at="mark_active",
)
"""Off and on again, on the nodes it has."""

MOVE_INSTANCE = Workflow(
    MOVE,
    (
        Step(moving_steps.take_successors, undo=moving_steps.give_up_move),
        Step(steps.bind_nodes),
        Step(moving_steps.await_successors),
        Step(moving_steps.reach_both, undo=moving_steps.reach_members),
        Step(moving_steps.await_routes),
        *DRAINED,
        Step(moving_steps.cut_over),
        Step(steps.reserve_nodes),
        Step(steps.admit_slices),
        *TO_ACTIVE,
    ),
    deadline_s=DRAINING_S,
    refused=_kept_as_it_was,
    committed_at="cut_over",
)
"""Make before break: until `cut_over` a refusal leaves everything where it was. A move leaves the lease as it is;
another one is requested in place after it."""

RELOCATE_MEMBER = Workflow(
    RELOCATE,
    (
        Step(moving_steps.take_successor, undo=moving_steps.give_up_move),
        Step(steps.bind_nodes),
        Step(moving_steps.await_successor),
        Step(moving_steps.reach_both, undo=moving_steps.reach_members),
        Step(moving_steps.await_routes),
        *DRAINED,
        Step(moving_steps.cut_over),
        Step(steps.admit_slices),
        *TO_ACTIVE,
    ),
    deadline_s=DRAINING_S,
    refused=_kept_as_it_was,
    committed_at="cut_over",
)
"""A move of one member to a node that a defragmentation names; what breaks on the way is repaired first."""

REPLACE_NODE = Workflow(
    REPAIR,
    (
        Step(repairing_steps.fence_nodes),
        Step(workload_steps.tell_workload, undo=workload_steps.withdraw_drains),
        DRAIN,
        Step(repairing_steps.begin_rungs),
        Step(repairing_steps.replace_members),
        Step(steps.bind_nodes),
        Step(steps.admit_slices),
        Step(steps.program_routes),
        Step(repairing_steps.await_nodes),
        Step(repairing_steps.await_ready),
        Step(workload_steps.await_serving),
        Step(marking_steps.mark_active),
    ),
    deadline_s=DRAINING_S,
    refused=_repair_refused,
    retired={"begin_repair": "fence_nodes"},
)
"""Its parts are measured by the ends of its steps: `recovery.times`."""

RESTORE_MEMBERS = Workflow(
    RESTORE,
    (
        Step(restoring_steps.take_members, undo=restoring_steps.give_members_back),
        Step(steps.admit_slices),
        Step(steps.bind_nodes),
        Step(steps.program_routes),
        Step(repairing_steps.await_nodes),
        Step(repairing_steps.await_ready),
        Step(workload_steps.await_serving),
        Step(marking_steps.mark_active),
    ),
    refused=_restore_refused,
    committed_at="mark_active",
)
"""Members that an instance goes without are had back, since there is room; what is there serves meanwhile."""

RESTORE_SLICES_OF = Workflow(
    RESTORE_SLICES,
    (Step(steps.admit_slices), *TO_ACTIVE),
    refused=_kept_as_it_was,
    committed_at="mark_active",
)
"""Slices that somebody withdrew, of an instance whose changed spec waits or was refused: it has those of the shape that
it has."""

DELETE_INSTANCE = Workflow(
    "delete-instance",
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_deleted)),
    refused=_taken_up_again,
)
"""Clear the routes, clean and release the nodes, forget the instance. Deletion is never given up."""

YIELD_TO_OTHERS = Workflow(
    YIELD_CAPACITY,
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_pending)),
    refused=_taken_up_again,
)
"""An instance whose nodes were revoked gives up what is left of it, and waits until there is room for it again. Slices
first: until their floors are free, who took the nodes may not get its own."""

SUSPEND_INSTANCE = Workflow(
    SUSPEND,
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_suspended)),
    refused=_taken_up_again,
)
"""Everything is given back, and the spec is kept. Who runs on it has been scaled to zero before."""

WORKFLOWS = {
    workflow.verb: workflow
    for workflow in (
        CREATE_INSTANCE, SCALE_INSTANCE, STOP_INSTANCE, START_INSTANCE, RESTART_INSTANCE, MOVE_INSTANCE,
        RELOCATE_MEMBER, REPLACE_NODE, RESTORE_MEMBERS, RESTORE_SLICES_OF,
        DELETE_INSTANCE, YIELD_TO_OTHERS, SUSPEND_INSTANCE,
    )
}  # fmt: skip
