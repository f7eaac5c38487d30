"""Tracker: follows one expectation over time. It observes each snapshot until the outcome is decided. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from matrixcompute.scenarios.report import Outcome
from matrixcompute.scenarios.schema import Expectation, seconds


@dataclass
class Tracker:
    """`began_at`: the moment of the fault, from which the limit counts. `limit_s_min`: the least time that an
    expectation gets to come true, however short its own limit. `met_before`: whether it held before the fault."""

    expectation: Expectation
    began_at: float
    met_before: bool | None = None
    since: float | None = None
    """When it began to hold without interruption, as far as the samples show."""
    samples: int = 0
    last_message: str = ""
    outcome: Outcome | None = None
    limit_s_min: float = 0.0

    def __post_init__(self) -> None:
        if self.met_before:
            self.since = self.began_at

    @property
    def limit_s(self) -> float:
        """The time limit (s). Mode `always` is checked for exactly as long as it says, never longer."""
        within_s = seconds(self.expectation.within)
        return within_s if self.expectation.mode == "always" else max(within_s, self.limit_s_min)

    @property
    def deadline(self) -> float:
        return self.began_at + self.limit_s

    def observe(self, now: float, holds: bool | None, message: str = "") -> None:
        """Observe the result of a snapshot that began at `now`; None: a service did not answer."""
        if self.outcome is not None:
            return
        self.last_message = message
        late = now > self.deadline + 1e-6
        if holds is not None:
            self.samples += 1
            if holds and self.since is None:
                self.since = now
            elif not holds:
                self.since = None
        mode = self.expectation.mode
        if mode == "always":
            if holds is False and not late:
                self._decide(False, now)
            elif now >= self.deadline - 1e-6 and (holds is not None or late):
                self._decide(self.samples > 0 and holds is not False, None)
        elif mode == "reached":
            if holds and not late:
                self._decide(not self.met_before, now, "it already held before the fault" if self.met_before else "")
            elif late or (holds is False and now >= self.deadline - 1e-6):
                self._decide(False, None, self._came_too_late())
        elif now >= self.deadline - 1e-6 and holds is not None:
            in_time = self.since is not None and self.since <= self.deadline + 1e-6
            self._decide(in_time, self.since, self._came_too_late())
        elif late:
            self._decide(False, None)

    def _came_too_late(self) -> str:
        """If it holds now, what was wrong with that: the last reading alone would read as if it were met."""
        if self.since is None:
            return ""
        return f"it holds, but was first seen to {self.since - self.began_at:.0f} s after the fault"

    def _decide(self, passed: bool, at: float | None, message: str = "") -> None:
        each = self.expectation
        self.outcome = Outcome(
            name=each.name or each.sentence(),
            passed=passed,
            seconds=round(at - self.began_at, 3) if passed and at is not None else None,
            within_s=self.limit_s,
            message="" if passed else message or self.last_message,
        )
