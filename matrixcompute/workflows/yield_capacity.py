"""An instance whose nodes were revoked gives up what is left of it, and waits until there is room for it again."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError
from matrixcompute.operations.saga import YIELD_CAPACITY, Saga, Step
from matrixcompute.store.store import InstanceRow
from matrixcompute.workflows import steps


def _refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    """It waits anyhow; what is left is revoked when it is created anew, or as an orphan."""
    instance.retry_at = now


YIELD_CAPACITY_WORKFLOW = Saga(
    YIELD_CAPACITY, (Step(steps.withdraw_slices), Step(steps.release_nodes), Step(steps.mark_pending)), refused=_refused
)
"""Slices first: until their floors are free, who took the nodes may not get its own."""
