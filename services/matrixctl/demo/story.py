"""A story: named steps told one after the other, timed, and stopped at the first whose promise does not hold.

A step is a function of the telling. It says what it sees, and raises StepFailed with what it saw instead of what it
should have; a refusal of a service counts as the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from matrixcommon.model.errors import MatrixError, Unavailable
from services.matrixctl.output.screen import console, one_line, say

T = TypeVar("T")

LOOK_PERIOD_WALL_S = 0.25


class StepFailed(Exception):
    """What was seen instead of what the step promises."""


@dataclass(frozen=True)
class Step:
    """One step: a heading and a action."""

    name: str
    title: str
    action: Callable[[Any], None]


@dataclass
class Outcome:
    """How a story went: seconds of the wall per step, and the failure that ended it, if any."""

    took_wall_s: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    seen: str = ""

    @property
    def ok(self) -> bool:
        return self.failed is None


def tell(steps: Sequence[Step], telling: Any) -> Outcome:
    """Every step in order, up to the first that fails."""
    outcome = Outcome()
    for number, step in enumerate(steps, 1):
        say(f"\n[bold cyan]{number}/{len(steps)} {step.title}[/]")
        began = time.monotonic()
        try:
            step.action(telling)
        except StepFailed as failure:
            outcome.failed, outcome.seen = step.name, str(failure)
        except MatrixError as refused:
            outcome.failed, outcome.seen = step.name, one_line(refused)
        outcome.took_wall_s[step.name] = time.monotonic() - began
        if not outcome.ok:
            return outcome
        say(f"   [dim]{outcome.took_wall_s[step.name]:.1f} s[/]")
    return outcome


def until(
    what: str,
    question: Callable[[], T | None],
    patience_wall_s: float,
    *,
    progress: Callable[[], str] = lambda: "",
    away: tuple[type[MatrixError], ...] = (Unavailable,),
    shown_by: Any = None,
) -> T:
    """The first answer that is not None or False. Raises StepFailed with the last progress when none comes in time.

    A service that is away for a moment (it may be starting again) is asked again. Meanwhile `shown_by` or, on a
    terminal, a spinner is updated with the progress.
    """
    end = time.monotonic() + patience_wall_s
    with nullcontext(shown_by) if shown_by or not console().is_terminal else console().status(what) as screen:
        while True:
            shown = missing = ""
            try:
                answer = question()
                if answer is not None and answer is not False:
                    return answer
                shown = progress()
            except away as gone:
                missing = one_line(gone)
            if screen is not None:
                screen.update(f"{what}  [dim]{shown or missing}[/]")
            if time.monotonic() > end:
                seen = shown or missing or "nothing"
                raise StepFailed(f"{what}: not within {patience_wall_s:g} s; last seen: {seen}")
            time.sleep(LOOK_PERIOD_WALL_S)


def check(holds: bool, seen: str) -> None:
    """Raise StepFailed with what was seen, unless it holds."""
    if not holds:
        raise StepFailed(seen)
