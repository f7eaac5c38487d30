"""Sagas over an instance that runs: a changed shape, another place, a member to move or replace. The rest works on."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError, StaleGeneration
from matrixcommon.model.resource_model import condition
from matrixcompute.operations.saga import MOVE, RELOCATE, REPAIR, Saga, Step
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows import moving_steps, steps
from matrixcompute.workflows.create_instance import RETRY_S


def _kept_as_it_was(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    instance.move("Active")
    instance.retry_at = now if isinstance(refused, StaleGeneration) else now + RETRY_S
    instance.conditions = condition(
        instance.conditions or [],
        "Progressing",
        False,
        refused.reason,
        refused.message,
        generation=instance.generation,
        now=now,
    )


SCALE_INSTANCE = Saga(
    "scale-instance",
    (
        Step(steps.reserve_nodes, undo=steps.restore_shape),
        Step(steps.admit_slices),
        Step(steps.bind_nodes),
        Step(steps.program_routes),
        Step(steps.await_ready),
        Step(steps.mark_active),
    ),
    refused=_kept_as_it_was,
)

MOVE_INSTANCE = Saga(
    MOVE,
    (
        Step(moving_steps.take_successors, undo=moving_steps.give_up_move),
        Step(steps.bind_nodes),
        Step(moving_steps.await_successors),
        Step(moving_steps.reach_both, undo=moving_steps.reach_members),
        Step(moving_steps.await_routes),
        Step(moving_steps.cut_over),
        Step(steps.reserve_nodes),
        Step(steps.admit_slices),
        Step(steps.program_routes),
        Step(steps.await_ready),
        Step(steps.mark_active),
    ),
    refused=_kept_as_it_was,
)
"""Make before break: until `change_over` a refusal leaves everything where it was. A move leaves the lease as it is;
another one is requested in place after it."""

RELOCATE_MEMBER = Saga(
    RELOCATE,
    (
        Step(moving_steps.take_successor, undo=moving_steps.give_up_move),
        Step(steps.bind_nodes),
        Step(moving_steps.await_successor),
        Step(moving_steps.reach_both, undo=moving_steps.reach_members),
        Step(moving_steps.await_routes),
        Step(moving_steps.cut_over),
        Step(steps.admit_slices),
        Step(steps.program_routes),
        Step(steps.await_ready),
        Step(steps.mark_active),
    ),
    refused=_kept_as_it_was,
)
"""A move of one member to a node that a defragmentation names; what breaks on the way is repaired first."""

REPLACE_NODE = Saga(
    REPAIR,
    (
        Step(steps.replace_members),
        Step(steps.bind_nodes),
        Step(steps.admit_slices),
        Step(steps.program_routes),
        Step(steps.await_ready),
        Step(steps.mark_active),
    ),
    refused=_kept_as_it_was,
)
