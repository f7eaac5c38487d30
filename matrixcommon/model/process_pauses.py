"""How long this process did not run: stopped, swapped out, or too busy to come round to its own periodic work.

Whoever judges others by their silence counts only the time in which it could have heard them. A process cannot know
while it stands still; it sees afterwards that a beat it gives itself on a period came late.
"""

from __future__ import annotations

import math

from matrixcommon.model.clock import Clock

LATE_PERIODS = 2.0
"""A beat that comes later than this many of its periods after the last one is late."""


class ProcessPauses:
    """`period_s`: how often `beat` is called when all is well; without one no pause is seen."""

    def __init__(self, clock: Clock, period_s: float = math.inf) -> None:
        self._clock = clock
        self._period_s = period_s
        self._beat_at = math.inf
        self._before_s = 0.0

    def beat(self) -> float:
        """How late it comes; 0 where it does not."""
        late_s = self._late_s()
        self._before_s += late_s
        self._beat_at = self._clock.now()
        return late_s

    @property
    def total_s(self) -> float:
        """All pauses so far, one that has just ended and that no beat has seen yet included."""
        return self._before_s + self._late_s()

    def _late_s(self) -> float:
        return max(0.0, self._clock.now() - self._beat_at - LATE_PERIODS * self._period_s)
