"""Giving a saga up where it stands: the way out where neither its steps nor their undoing will ever succeed."""

from __future__ import annotations

from matrixcommon.model.errors import Abandoned, Conflict
from matrixcommon.model.resource_model import is_true
from matrixcompute.operations.saga_runner import STUCK
from matrixcompute.store.store import OPEN, SagaRow


def abandon(row: SagaRow, why: str, now: float) -> Abandoned:
    """End a saga where it stands, in the caller's transaction; returns what it ends with. What it did stays done, for
    whoever abandons it to put right. Raises Conflict where it has ended."""
    if row.state not in OPEN:
        raise Conflict(f"{row.verb} has ended: it is {row.state}; only what is under way can be abandoned")
    reason = Abandoned(f"{row.verb} was abandoned at {row.reached}: {why}")
    row.state, row.finished_at = "Failed", now
    row.error, row.message = reason.problem(), f"{reason.reason}: {reason.message}"
    if is_true(row.conditions or [], STUCK):
        row.set_condition(STUCK, False, reason.reason, reason.message, now)
    return reason
