"""The progress of each step of a workflow: attempts, times, last message; and the retry policy of failed steps.

Stored with the workflow by step name, in wire form, so that it outlives the process and the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.quantities import timestamp
from matrixcommon.workflows.contract import StepView

Trace = Mapping[str, dict[str, Any]]
"""By step name: `startedAt`, `finishedAt`, `undoStartedAt` and `undoneAt` (s, emulated), failed `attempts`, `message`,
`refused` if it was refused for good, and `firstFinishedAt` of a step that is done again."""


ENGINE_FIELDS = ("startedAt", "finishedAt", "undoStartedAt", "undoneAt", "attempts", "message", "refused")


@dataclass(frozen=True)
class RetryPolicy:
    """Delays before a failed step is retried (s, emulated), and how many unexpected failures make it give up. Retryable
    errors, such as an unavailable service, are retried without limit."""

    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    attempts_max: int = 12

    def delay_s(self, attempts: int) -> float:
        """The delay after that many failed attempts, at least one."""
        return float(min(self.first_s * self.factor ** min(attempts - 1, 60), self.longest_s))

    def exhausted(self, attempts: int) -> bool:
        return attempts >= self.attempts_max


def with_entry(trace: Trace | None, step: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """The trace with changes to one step's entry."""
    before = dict(trace or {})
    return before | {step: before.get(step, {}) | changes}


def rewound(trace: Trace | None, steps: Sequence[str], now: float) -> dict[str, dict[str, Any]]:
    """The trace of a workflow that goes back to the first of these steps, some of which were done before. Entries that
    steps recorded for themselves are kept."""
    found = dict(trace or {})
    for step in steps:
        if (entry := found.get(step)) is not None:
            kept = {name: value for name, value in entry.items() if name not in ENGINE_FIELDS}
            first = {} if entry.get("finishedAt") is None else {"firstFinishedAt": entry["finishedAt"]}
            found[step] = first | kept
    return with_entry(found, steps[0], startedAt=now)


def start_field(state: str) -> str:
    """The trace field with the start of the current step in this workflow state: an undo has a start, and so a
    deadline, of its own."""
    return "undoStartedAt" if state == "Undoing" else "startedAt"


def attempts(trace: Trace | None, step: str) -> int:
    return int((trace or {}).get(step, {}).get("attempts", 0))


def step_views(steps: Sequence[str], trace: Trace | None, at: int, state: str) -> list[StepView]:
    """The views of all steps. `at`: how many are done, or still to be undone; `state`: the workflow's."""
    return [_view(name, (trace or {}).get(name, {}), place, at, state) for place, name in enumerate(steps)]


def _view(name: str, entry: Mapping[str, Any], place: int, at: int, state: str) -> StepView:
    started, finished, undone = entry.get("startedAt"), entry.get("finishedAt"), entry.get("undoneAt")
    if entry.get("refused"):
        shown = "Failed"
    elif undone is not None:
        shown = "Undone"
    elif state == "Undoing" and place == at:
        shown = "Undoing"
    elif finished is not None or place < at:
        shown = "Done"
    elif state == "Running" and place == at:
        shown = "Running"
    elif started is not None:
        shown = "Cancelled" if state == "Cancelled" else "Failed"
    else:
        shown = "Waiting"
    return StepView(
        name=name,
        state=shown,
        attempts=int(entry.get("attempts", 0)),
        started_at=None if started is None else timestamp(started),
        finished_at=None if (undone or finished) is None else timestamp(undone or finished),
        message=str(entry.get("message", "")),
    )
