"""A demo: named steps run one after the other, timed, and stopped at the first that fails.

A step is a function of the run. It prints what it observes, and raises StepFailed with the observation if that is not
what it should be; a refusal by a service counts as a failure too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from matrixcommon.model.errors import MatrixError, Unavailable
from services.matrixctl.output.screen import console, echo, one_line

T = TypeVar("T")

POLL_PERIOD_WALL_S = 0.25


class StepFailed(Exception):
    """What was observed instead of what the step expects."""


@dataclass(frozen=True)
class Step:
    """One step: a heading and an action."""

    name: str
    title: str
    action: Callable[[Any], None]


@dataclass
class Outcome:
    """The outcome of a demo: wall seconds per step, and the failure that ended it, if any."""

    took_wall_s: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    seen: str = ""

    @property
    def ok(self) -> bool:
        return self.failed is None


def run_steps(steps: Sequence[Step], run: Any) -> Outcome:
    """Run every step in order, up to the first that fails."""
    outcome = Outcome()
    for number, step in enumerate(steps, 1):
        echo(f"\n[bold cyan]{number}/{len(steps)} {step.title}[/]")
        began = time.monotonic()
        try:
            step.action(run)
        except StepFailed as failure:
            outcome.failed, outcome.seen = step.name, str(failure)
        except MatrixError as refused:
            outcome.failed, outcome.seen = step.name, one_line(refused)
        outcome.took_wall_s[step.name] = time.monotonic() - began
        if not outcome.ok:
            return outcome
        echo(f"   [dim]{outcome.took_wall_s[step.name]:.1f} s[/]")
    return outcome


def wait_until(
    what: str,
    condition: Callable[[], T | None],
    timeout_wall_s: float,
    *,
    progress: Callable[[], str] = lambda: "",
    retry_on: tuple[type[MatrixError], ...] = (Unavailable,),
    display: Any = None,
) -> T:
    """Poll until the answer is neither None nor False, and return it. Raises StepFailed with the last progress on
    timeout.

    Requests to a service that is briefly down (it may be restarting) are retried. Meanwhile `display` or, on a
    terminal, a spinner shows the progress.
    """
    end = time.monotonic() + timeout_wall_s
    with nullcontext(display) if display or not console().is_terminal else console().status(what) as screen:
        while True:
            shown = missing = ""
            try:
                answer = condition()
                if answer is not None and answer is not False:
                    return answer
                shown = progress()
            except retry_on as gone:
                missing = one_line(gone)
            if screen is not None:
                screen.update(f"{what}  [dim]{shown or missing}[/]")
            if time.monotonic() > end:
                seen = shown or missing or "nothing"
                raise StepFailed(f"{what}: not within {timeout_wall_s:g} s; last seen: {seen}")
            time.sleep(POLL_PERIOD_WALL_S)


def check(holds: bool, seen: str) -> None:
    """Raise StepFailed with the observation unless the condition holds."""
    if not holds:
        raise StepFailed(seen)
