"""The workflows over an instance, each declared as a list of steps."""

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


def _is_permanent(refused: MatrixError) -> bool:
    """Whether waiting cannot help. An instance named in an affinity may still appear."""
    return refused.final and not (refused.field or "").startswith(("affinity", "antiAffinity"))


def _spec_has_changed(session: Session, instance: InstanceRow) -> bool:
    """Whether an instance has another spec than the one that its last operation on record was for."""
    operation = session.get(OperationRow, instance.operation or "")
    return operation is not None and operation.spec_generation != instance.generation


def _return_to_pending(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    if _spec_has_changed(session, instance):
        instance.enter("Pending", now)
        instance.retry_at = 0.0  # the refusal was of an older spec: the present one is tried at once
    else:
        instance.enter("Failed" if _is_permanent(refused) else "Pending", now)
        # A cancelled creation is not retried: it waits for `:retry` or another shape.
        instance.retry_at = math.inf if isinstance(refused, Cancelled) else now + RETRY_S
    if instance.expires_at is not None and instance.expires_at > now:
        instance.expires_at = None  # its nodes are released, and the lease with them
    for condition in ("Scheduled", "Progressing"):
        instance.set_condition(condition, False, refused.reason, refused.message, now)


def _keep_current_shape(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    below = isinstance(refused, BelowFloor) and instance.state == "Repairing"
    instance.enter("Failed" if below else settled_state((instance.last_active or instance.shape).power), now)
    instance.retry_at = 0.0 if isinstance(refused, (Cancelled, StaleGeneration)) else now + RETRY_S
    message = refused.message
    if _is_permanent(refused):
        operation = session.get(OperationRow, instance.operation or "")
        if operation is not None and operation.spec_generation == instance.generation:
            instance.refused_generation = instance.generation
            message = f"{message}; it stays as it was until `:retry` or another spec"
    instance.set_condition("Progressing", False, refused.reason, message, now)


def _stop_or_retry_repair(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    _keep_current_shape(session, instance, refused, now)
    if policy_of(instance.name, policies_by_target(session), RecoveryPolicy()).stop_on_exhausted:
        instance.retry_at = math.inf
        message = f"{refused.message}; it waits for `:retry`"
        instance.set_condition("Progressing", False, "RecoveryStopped", message, now)


def _keep_degraded_shape(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    _keep_current_shape(session, instance, refused, now)
    if isinstance(refused, Cancelled):
        instance.retry_at = math.inf


def _reopen(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    """The reconciler opens it again. What a yielding instance has left is released when it is created again, or as an
    orphan."""
    instance.retry_at = 0.0


# ---- the workflows --------------------------------------------------------------------------------------------------

TO_ACTIVE = (Step(steps.program_routes), Step(repairing_steps.await_ready), Step(marking_steps.mark_active))
"""How every workflow that brings an instance to a shape ends."""

DRAIN = Step(workload_steps.drain_members, deadline_s=90_000.0)
"""The deadline covers the longest drain (a day), and somewhat more."""

DRAIN_DEADLINE_S = 97_200.0
"""The deadline of a workflow in which members drain: that, and the two hours of any other workflow."""

DRAINED = (
    Step(workload_steps.await_loaded, undo=workload_steps.leave_successors),
    Step(workload_steps.tell_workload, undo=workload_steps.withdraw_drains),
    DRAIN,
)
"""Before members leave: the workload uses the successors, then drains the members."""

CREATE_INSTANCE = Workflow(
    "create-instance",
    (
        Step(steps.reserve_nodes, undo=steps.release_nodes),
        Step(steps.admit_slices, undo=steps.withdraw_slices),
        Step(steps.bind_nodes),
        *TO_ACTIVE,
    ),
    refused=_return_to_pending,
    committed_at="mark_active",
)
"""If any step is refused, everything is released."""

SCALE_INSTANCE = Workflow(
    "scale-instance",
    (
        Step(steps.reserve_nodes, undo=steps.restore_shape),
        Step(steps.admit_slices),
        Step(steps.bind_nodes),
        *TO_ACTIVE,
    ),
    refused=_keep_current_shape,
    committed_at="mark_active",
)
"""Change the shape; everything else keeps running."""

STOP_INSTANCE = replace(SCALE_INSTANCE, verb=STOP)
"""The present nodes are switched off and kept; other changes of the spec follow afterwards."""

START_INSTANCE = replace(
    SCALE_INSTANCE,
    verb=START,
    steps=(SCALE_INSTANCE.steps[0], Step(repairing_steps.make_startable), *SCALE_INSTANCE.steps[1:]),
)
"""Nodes that broke while off are replaced before anything is switched on."""

RESTART_INSTANCE = Workflow(
    RESTART,
    (Step(steps.switch_off, undo=steps.bind_nodes), Step(steps.await_off), Step(steps.bind_nodes), *TO_ACTIVE),
    refused=_keep_current_shape,
    committed_at="mark_active",
)
"""Power-cycle the present nodes."""

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
    deadline_s=DRAIN_DEADLINE_S,
    refused=_keep_current_shape,
    committed_at="cut_over",
)
"""Make before break: until `cut_over` a refusal leaves everything where it was. A move does not change the lease; a
changed lease is requested in place afterwards."""

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
    deadline_s=DRAIN_DEADLINE_S,
    refused=_keep_current_shape,
    committed_at="cut_over",
)
"""Move one member to a node that a defragmentation names. If something breaks meanwhile, it is repaired first."""

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
    deadline_s=DRAIN_DEADLINE_S,
    refused=_stop_or_retry_repair,
    retired_steps={"begin_repair": "fence_nodes"},
)
"""`recovery.times` measures the parts of a recovery by the ends of these steps."""

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
    refused=_keep_degraded_shape,
    committed_at="mark_active",
)
"""Bring back missing members, now that there is room; the present ones keep serving."""

RESTORE_INSTANCE_SLICES = Workflow(
    RESTORE_SLICES,
    (Step(steps.admit_slices), *TO_ACTIVE),
    refused=_keep_current_shape,
    committed_at="mark_active",
)
"""Readmit withdrawn slices of an instance whose changed spec waits or was refused, in its present shape."""

DELETE_INSTANCE = Workflow(
    "delete-instance",
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_deleted)),
    refused=_reopen,
)
"""Clear the routes, clean and release the nodes, delete the instance. Deletion is never abandoned."""

YIELD_INSTANCE = Workflow(
    YIELD_CAPACITY,
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_pending)),
    refused=_reopen,
)
"""An instance whose nodes were revoked releases the rest and waits until there is room again. Slices go first: until
their floors are free, the preemptor may not get its own."""

SUSPEND_INSTANCE = Workflow(
    SUSPEND,
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(marking_steps.mark_suspended)),
    refused=_reopen,
)
"""Release everything and keep the spec. The workload has been scaled to zero before."""

WORKFLOWS = {
    workflow.verb: workflow
    for workflow in (
        CREATE_INSTANCE, SCALE_INSTANCE, STOP_INSTANCE, START_INSTANCE, RESTART_INSTANCE, MOVE_INSTANCE,
        RELOCATE_MEMBER, REPLACE_NODE, RESTORE_MEMBERS, RESTORE_INSTANCE_SLICES,
        DELETE_INSTANCE, YIELD_INSTANCE, SUSPEND_INSTANCE,
    )
}  # fmt: skip
