"""Verbs on a workflow in progress: cancel, resume, abandon. Each runs in the caller's transaction; a nudge of the
runner then informs the workflow's task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrixcommon.model.errors import Abandoned, Cancelled, Conflict, MatrixError
from matrixcommon.workflows.progress import start_field, with_entry
from matrixcommon.workflows.rows import OPEN, STUCK, WorkflowRow
from matrixcommon.workflows.workflow import Workflow

RESUMABLE = ("RetriesExhausted", "StepDeadline", "WorkflowDeadline")
"""Reasons for being stuck after which a user may resume the workflow; with others only another release can."""


def roll_back(row: WorkflowRow, refused: MatrixError) -> None:
    """Start to undo a workflow, last step first."""
    row.state, row.error, row.message = "Undoing", refused.problem(), f"{refused.reason}: {refused.message}"


def cancel(workflows: Mapping[str, Workflow[Any]], row: WorkflowRow) -> None:
    """Roll a workflow back. Idempotent. Raises Conflict if it cannot be cancelled (any more)."""
    if (row.error or {}).get("reason") == Cancelled.__name__:
        return
    workflow = workflows.get(row.verb)
    if row.state not in OPEN:
        raise Conflict(f"{row.verb} has ended: it is {row.state}; only what is under way can be cancelled")
    if row.state == "Undoing":
        raise Conflict(f"{row.verb} was refused and is being undone already")
    if workflow is None or not workflow.can_be_cancelled(row):
        can = ", ".join(f"{each.verb} before {each.committed_at}" for each in workflows.values() if each.committed_at)
        raise Conflict(f"{row.verb} at {row.reached} cannot be cancelled; these can: {can}")
    roll_back(row, Cancelled(f"{row.verb} was cancelled at {row.reached}"))


def resume(row: WorkflowRow, now: float) -> None:
    """Retry a workflow that was given up or is late. Raises Conflict if it is not stuck, or if only another release can
    resume it."""
    reported = row.stuck
    if row.state not in OPEN or reported is None:
        raise Conflict(f"{row.verb} is {row.state} and not stuck; there is nothing to resume")
    if reported["reason"] not in RESUMABLE:
        raise Conflict(f"{row.verb} resumes in a release that knows it: {reported['message']}")
    row.trace = with_entry(row.trace, row.reached, attempts=0, **{start_field(row.state): now})
    row.set_condition(STUCK, False, "Resumed", "somebody had it tried again", now)


def abandon(row: WorkflowRow, why: str, now: float) -> Abandoned:
    """End a workflow at its current step: the last resort if neither its steps nor their undoing will ever succeed.
    What it did stays done and is for the user to clean up. Returns its error. Raises Conflict if it has ended."""
    if row.state not in OPEN:
        raise Conflict(f"{row.verb} has ended: it is {row.state}; only what is under way can be abandoned")
    reason = Abandoned(f"{row.verb} was abandoned at {row.reached}: {why}")
    fail(row, reason, now)
    return reason


def fail(row: WorkflowRow, reason: MatrixError, now: float) -> None:
    """End a workflow in progress at its current step: there is nothing to undo, or the caller takes care of it."""
    row.state, row.finished_at = "Failed", now
    row.error, row.message = reason.problem(), f"{reason.reason}: {reason.message}"
    if row.stuck is not None:
        row.set_condition(STUCK, False, reason.reason, reason.message, now)


def supersede(row: WorkflowRow, by: str, now: float) -> None:
    """End a workflow because something else is now wanted of its target; what overtakes it takes over what it did."""
    row.state, row.finished_at, row.message = "Cancelled", now, f"overtaken by {by}"
    if row.stuck is not None:
        row.set_condition(STUCK, False, "Cancelled", row.message, now)
