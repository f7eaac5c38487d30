"""Reserve, admit, bind, program, wait, mark active. Refused anywhere, everything before it is given back."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_model import condition
from matrixcompute.operations.saga import Saga, Step
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows import steps

RETRY_S = 30.0
"""A refused spec is tried again this much later, or as soon as nodes come free."""


def _refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    instance.move("Pending")
    instance.retry_at = now + RETRY_S
    if instance.expires_at is not None and instance.expires_at > now:
        instance.expires_at = None  # what it held is given back, and with it the lease
    instance.conditions = condition(
        instance.conditions or [],
        "Scheduled",
        False,
        refused.reason,
        refused.message,
        generation=instance.generation,
        now=now,
    )


CREATE_INSTANCE = Saga(
    "create-instance",
    (
        Step(steps.reserve_nodes, undo=steps.release_nodes),
        Step(steps.admit_slices, undo=steps.withdraw_slices),
        Step(steps.bind_nodes),
        Step(steps.program_routes),
        Step(steps.await_ready),
        Step(steps.mark_active),
    ),
    refused=_refused,
)
