"""How far each step of a workflow is: attempts, times, its last word; and how soon a failed one is tried again.

Kept with the workflow by the names of its steps, in its wire form, so that it outlives the process and the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.quantities import timestamp
from matrixcommon.workflows.contract import StepView

Trace = Mapping[str, dict[str, Any]]
"""By the name of a step: `startedAt`, `finishedAt`, `undoStartedAt` and `undoneAt` (s, emulated), `attempts` that
failed, `message`, `refused` where it was for good; `firstFinishedAt` of one that was begun again."""


OF_THE_ENGINE = ("startedAt", "finishedAt", "undoStartedAt", "undoneAt", "attempts", "message", "refused")


@dataclass(frozen=True)
class RetryPolicy:
    """How soon a step that failed is tried again (s, emulated), and how many failures of a kind that nobody foresaw are
    enough. A neighbour that is away is asked for as long as it takes."""

    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    attempts_max: int = 12

    def delay_s(self, attempts: int) -> float:
        """After so many failed attempts, at least one."""
        return float(min(self.first_s * self.factor ** min(attempts - 1, 60), self.longest_s))

    def exhausted(self, attempts: int) -> bool:
        return attempts >= self.attempts_max


def noted(trace: Trace | None, step: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """The trace with something more said of one step."""
    before = dict(trace or {})
    return before | {step: before.get(step, {}) | changes}


def begun_again(trace: Trace | None, steps: Sequence[str], now: float) -> dict[str, dict[str, Any]]:
    """The trace of a workflow that continues from the first of these steps, some of which were done before. What a
    step noted for itself is kept."""
    found = dict(trace or {})
    for step in steps:
        if (entry := found.get(step)) is not None:
            kept = {name: value for name, value in entry.items() if name not in OF_THE_ENGINE}
            first = {} if entry.get("finishedAt") is None else {"firstFinishedAt": entry["finishedAt"]}
            found[step] = first | kept
    return noted(found, steps[0], startedAt=now)


def start_of(state: str) -> str:
    """Under which word it is noted when the step was begun at which a workflow in this state stands: an undo has the
    time of its step for itself."""
    return "undoStartedAt" if state == "Undoing" else "startedAt"


def attempts(trace: Trace | None, step: str) -> int:
    return int((trace or {}).get(step, {}).get("attempts", 0))


def step_views(steps: Sequence[str], trace: Trace | None, at: int, state: str) -> list[StepView]:
    """Each step as it is shown. `at`: how many are done, or still to undo; `state`: the workflow's."""
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
