"""Clear the routes, clean and release the nodes, forget the instance."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError
from matrixcompute.operations.saga import Saga, Step
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows import steps


def _refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    """Deletion is never given up: the watcher opens it again."""
    instance.retry_at = now


DELETE_INSTANCE = Saga(
    "delete-instance",
    (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(steps.mark_deleted)),
    refused=_refused,
)
