"""WorkflowLog: the durable record of workflows' progress, each entry in its own transaction.

Each entry names the step it is about; nothing is written if the workflow has been overtaken meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Cancelled, MatrixError, from_problem
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.host import Host, R
from matrixcommon.workflows.progress import attempts, rewound, start_field, with_entry
from matrixcommon.workflows.rows import OPEN, STUCK
from matrixcommon.workflows.verbs import roll_back
from matrixcommon.workflows.workflow import C, RewindToStep, Step, Workflow

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Progress:
    """The recorded state of a workflow in progress: the step it has reached, and its last message."""

    state: str
    reached: str
    message: str
    trace: Mapping[str, Mapping[str, Any]]
    stuck: bool
    timed_from: float


class WorkflowLog(Generic[C, R]):
    """The record of one service's workflows."""

    def __init__(self, host: Host[C, R], clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def at(self, name: str) -> tuple[str, str] | None:
        """A workflow's state and the step it has reached; None if it has ended (or was overtaken)."""
        written = self._written(name)
        return None if written is None else (written.state, written.reached)

    def note(self, name: str, workflow: Workflow[C], step: Step[C], message: str, failed: bool = False) -> int:
        """Record the last message of a step and whether it failed. Return the number of its failures after a failure,
        else 0.

        A step that has taken longer than its deadline is marked as stuck, but still waited for.
        """
        now, count, late = self._clock.now(), 0, None
        if not failed and self._is_unchanged(name, workflow, step, message, now):
            return count
        with self._open(name) as (_, row):
            if row is None:
                return 0
            count = attempts(row.trace, step.name) + failed
            row.message = f"{message}; trying again" if failed else message
            if failed or (row.trace or {}).get(step.name, {}).get("message") != message:
                row.trace = with_entry(row.trace, step.name, message=message, attempts=count)
            if row.stuck is None:
                start = start_field(row.state)
                started = (row.trace or {}).get(step.name, {}).get(start)
                if started is None:
                    started, row.trace = now, with_entry(row.trace, step.name, **{start: now})
                late = _exceeded_deadline(workflow, step, message, now - started, now - row.timed_from)
        if late is not None:
            self._set_stuck(name, True, *late)
        return count

    def _is_unchanged(self, name: str, workflow: Workflow[C], step: Step[C], message: str, now: float) -> bool:
        """Whether a pending step repeats its message and is not late: steps are called at every nudge, and mostly there
        is nothing to write."""
        written = self._written(name)
        if written is None:
            return True
        last = written.trace.get(step.name, {})
        if written.message != message or last.get("message") != message:
            return False
        started = last.get(start_field(written.state))
        if written.stuck or started is None:
            return written.stuck
        return _exceeded_deadline(workflow, step, message, now - started, now - written.timed_from) is None

    def _written(self, name: str) -> _Progress | None:
        """The record of a workflow; None if it is not in progress."""

        def ask(session: Session) -> _Progress | None:
            row = session.get(self._host.row, name)
            if row is None or row.state not in OPEN:
                return None
            stuck = row.stuck is not None
            return _Progress(row.state, row.reached, row.message, row.trace or {}, stuck, row.timed_from)

        return self._host.store.records.cached_query(self._host.row, ("written", name), ask)

    def begun(self, name: str) -> None:
        """A workflow that waited for the end of a drain starts now, or continues."""
        with self._open(name) as (_, row):
            if row is None:
                return
            if not row.trace:
                row.trace = with_entry(None, row.reached, startedAt=self._clock.now())
            if row.state == "Waiting":
                row.state, row.message = "Running", ""

    def done(self, name: str, reached: str) -> None:
        """The step is done; with the last one the workflow is."""
        with self._open(name) as (_, row):
            if row is None or row.state != "Running" or row.reached != reached:
                return  # overtaken, or cancelled meanwhile: then undoing begins with this step
            now = self._clock.now()
            row.trace = with_entry(row.trace, row.reached, finishedAt=now, message="")
            row.step += 1
            row.message = ""
            if row.stuck is not None:
                row.set_condition(STUCK, False, "Resumed", "the step it was stuck in is done", now)
            if row.step == len(row.steps):
                row.state, row.finished_at = "Done", now
            else:
                row.trace = with_entry(row.trace, row.reached, startedAt=now)

    def begun_again(self, name: str, reached: str, workflow: Workflow[C], again: RewindToStep) -> None:
        """The workflow goes back to an earlier step; that step and those after it are done again."""
        step = workflow.step(again.step)
        with self._open(name) as (_, row):
            if row is not None and step is not None and (row.state, row.reached) == ("Running", reached):
                # Steps that an earlier release named otherwise, or did not have, are replaced by those of this release.
                ahead = workflow.names[workflow.names.index(step.name) :]
                known = [workflow.step(each) for each in row.steps]
                row.step = next(at for at, each in enumerate(known) if each is not None and each.name in ahead)
                row.steps = [*row.steps[: row.step], *ahead]
                row.trace = rewound(row.trace, row.steps[row.step :], self._clock.now())
                row.message = str(again)

    def undone(self, name: str, reached: str, workflow: Workflow[C]) -> None:
        """The step is undone; with the first step the workflow has ended."""
        now = self._clock.now()
        with self._open(name) as (session, row):
            if row is None or row.reached != reached:
                return
            row.trace = with_entry(row.trace, row.reached, undoneAt=now)
            if row.stuck is not None:
                row.set_condition(STUCK, False, "Resumed", "the step it was stuck in is undone", now)
            if row.step > 0:
                row.step -= 1
                return
            refused = from_problem(row.error or {}, 500)
            row.state = "Cancelled" if isinstance(refused, Cancelled) else "Failed"
            row.finished_at, row.message = now, f"{refused.reason}: {refused.message}"
            self._host.on_rolled_back(session, workflow, row, refused, now)

    def refused(self, name: str, step: str, refused: MatrixError) -> None:
        """The step was refused for good: start to undo the workflow."""
        log.warning("workflow refused", extra={"workflow": name, "step": step, "why": refused.message})
        with self._open(name) as (_, row):
            if row is not None and row.state == "Running":
                row.trace = with_entry(row.trace, step, refused=True, message=f"{refused.reason}: {refused.message}")
                roll_back(row, refused)

    def stuck(self, name: str, reason: str, message: str) -> None:
        """Mark the workflow as stuck; others continue."""
        log.error("workflow is stuck", extra={"workflow": name, "reason": reason, "why": message})
        self._set_stuck(name, True, reason, f"stuck: {message}")

    def mark_known(self, name: str) -> None:
        self._set_stuck(name, False, "Resumed", "this release knows it again")

    def changed(self, name: str, steps: list[str], definition: str) -> None:
        """The workflow was started by a release that defines it differently, and continues as this release does."""
        now = self._clock.now()
        with self._open(name) as (session, row):
            if row is None:
                return
            changes = [f"without {each}" for each in row.steps if each not in steps]
            changes += [f"with {each}" for each in steps if each not in row.steps]
            how = ", ".join(changes) or "with other undo steps, another order or another payload"
            row.steps, row.definition = steps, definition
            row.trace = with_entry(row.trace, row.reached, startedAt=now)
            message = f"operation {name_of(name)} of another release continues {how}"
            self._host.record_event(session, row, "WorkflowChanged", message, now)

    def _set_stuck(self, name: str, stuck: bool, reason: str, message: str) -> None:
        now = self._clock.now()
        with self._open(name) as (session, row):
            if row is None:
                return
            if (row.stuck is not None) != stuck:
                text = f"operation {name_of(name)}: {message}"
                self._host.record_event(session, row, reason, text, now, warning=stuck)
            row.message = message if stuck else ""
            row.set_condition(STUCK, stuck, reason, message, now)

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[Session, Any]]:
        """A transaction with the row of a workflow in progress, or None if it is not."""
        with self._host.store.transaction() as session:
            row = session.get(self._host.row, name)
            yield session, row if row is not None and row.state in OPEN else None


def _exceeded_deadline(
    workflow: Workflow[Any], step: Step[Any], message: str, in_step_s: float, under_way_s: float
) -> tuple[str, str] | None:
    """The reason and message if a workflow exceeds its deadline, or this step its own; else None."""
    if in_step_s > step.deadline_s:
        return "StepDeadline", f"{step.name} for longer than {step.deadline_s:g} s: {message}"
    if under_way_s > workflow.deadline_s:
        return "WorkflowDeadline", f"under way for longer than {workflow.deadline_s:g} s: {message}"
    return None
