"""What people ask of a workflow under way: cancel, resume, abandon. Each in the caller's transaction; a nudge of the
runner informs the workflow's task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrixcommon.model.errors import Abandoned, Cancelled, Conflict, MatrixError
from matrixcommon.workflows.progress import noted, start_of
from matrixcommon.workflows.rows import OPEN, STUCK, WorkflowRow
from matrixcommon.workflows.workflow import Workflow

RESUMABLE = ("RetriesExhausted", "StepDeadline", "WorkflowDeadline")
"""Why a workflow can be stuck that a person may have tried again; else only another release resumes it."""


def roll_back(row: WorkflowRow, refused: MatrixError) -> None:
    """From now on it is undone, last step first."""
    row.state, row.error, row.message = "Undoing", refused.problem(), f"{refused.reason}: {refused.message}"


def cancel(workflows: Mapping[str, Workflow[Any]], row: WorkflowRow) -> None:
    """Roll a workflow back. Asked again, it changes nothing. Raises Conflict where it cannot be (any more)."""
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


def unstick(row: WorkflowRow, now: float) -> None:
    """Have a workflow that gave up, or is late, tried again. Raises Conflict where it is not stuck, or stuck in what
    only another release can resume."""
    reported = row.stuck
    if row.state not in OPEN or reported is None:
        raise Conflict(f"{row.verb} is {row.state} and not stuck; there is nothing to resume")
    if reported["reason"] not in RESUMABLE:
        raise Conflict(f"{row.verb} resumes in a release that knows it: {reported['message']}")
    row.trace = noted(row.trace, row.reached, attempts=0, **{start_of(row.state): now})
    row.set_condition(STUCK, False, "Resumed", "somebody had it tried again", now)


def abandon(row: WorkflowRow, why: str, now: float) -> Abandoned:
    """End a workflow where it stands: the way out where neither its steps nor their undoing will ever succeed. What it
    did stays done, for whoever abandons it to put right. Returns what it ends with. Raises Conflict where it has ended.
    """
    if row.state not in OPEN:
        raise Conflict(f"{row.verb} has ended: it is {row.state}; only what is under way can be abandoned")
    reason = Abandoned(f"{row.verb} was abandoned at {row.reached}: {why}")
    fail(row, reason, now)
    return reason


def fail(row: WorkflowRow, reason: MatrixError, now: float) -> None:
    """End a workflow under way where it stands: there is nothing to undo, or whoever ends it puts that right."""
    row.state, row.finished_at = "Failed", now
    row.error, row.message = reason.problem(), f"{reason.reason}: {reason.message}"
    if row.stuck is not None:
        row.set_condition(STUCK, False, reason.reason, reason.message, now)


def overtake(row: WorkflowRow, by: str, now: float) -> None:
    """End a workflow whose target is to be something else by now; whatever overtakes it takes over what it did."""
    row.state, row.finished_at, row.message = "Cancelled", now, f"overtaken by {by}"
    if row.stuck is not None:
        row.set_condition(STUCK, False, "Cancelled", row.message, now)
