"""How long this process did not run: stopped, swapped out, or too busy to come round to its own periodic work. And the
moments after a change of the clock's speed, in which nobody's silence means anything.

Whoever judges others by their silence counts only the time in which it could have heard them. A process cannot know
while it stands still; it sees afterwards that a beat it gives itself on a period came late.
"""

from __future__ import annotations

import math

from matrixcommon.model.clock import Clock, Seconds, seconds_now

LATE_PERIODS = 2.0
"""A beat that comes later than this many of its periods after the last one is late."""


class ProcessPauses:
    """`period_s`: how often `beat` is called when all is well (emulated, at the present speed); without one no pause is
    seen."""

    def __init__(self, clock: Clock, period_s: Seconds = math.inf) -> None:
        self._clock = clock
        self._period_s = period_s
        self._beat_at = math.inf
        self._before_s = 0.0
        self._adapted_s = clock.adapting_s
        self.stalled = False
        """Whether the last beat came late."""

    def beat(self) -> float:
        """For how long nobody could be heard since the last one: how late it comes, and what followed a change of
        speed; 0 where neither was."""
        late_s = self._late_s()
        self._before_s += late_s
        self.stalled = late_s > self._clock.adapting_s - self._adapted_s
        self._beat_at = self._clock.now()
        self._adapted_s = self._clock.adapting_s
        return late_s

    @property
    def total_s(self) -> float:
        """All pauses so far, one that has just ended and that no beat has seen yet included."""
        return self._before_s + self._late_s()

    def _late_s(self) -> float:
        adapting_s = self._clock.adapting_s - self._adapted_s
        since_s = self._clock.now() - self._beat_at - adapting_s
        return adapting_s + max(0.0, since_s - LATE_PERIODS * seconds_now(self._period_s))
