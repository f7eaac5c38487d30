"""How long this process did not run: stopped, swapped out, or too busy for its own periodic work. The moments after a
change of the clock's speed, in which silence means nothing, count as well.

A process that treats silence of others as failure must count only the time in which it could have heard them. It cannot
notice a pause while paused; it sees afterwards that its own periodic beat came late.
"""

from __future__ import annotations

import math

from matrixcommon.model.clock import Clock, Seconds, resolve_seconds

LATE_PERIODS = 2.0
"""A beat is late if it comes more than this many periods after the last one."""


class ProcessPauses:
    """`period_s`: how often `record_beat` is normally called (emulated seconds, at the present speed); if infinite, no
    pause is detected."""

    def __init__(self, clock: Clock, period_s: Seconds = math.inf) -> None:
        self._clock = clock
        self._period_s = period_s
        self._last_beat_at = math.inf
        self._recorded_s = 0.0
        self._adapted_s = clock.adapting_s
        self.stalled = False
        """Whether the last beat came late."""

    def record_beat(self) -> float:
        """Return for how long nobody could be heard since the last beat: its lateness plus the time that followed a
        change of speed, or 0."""
        late_s = self._late_s()
        self._recorded_s += late_s
        self.stalled = late_s > self._clock.adapting_s - self._adapted_s
        self._last_beat_at = self._clock.now()
        self._adapted_s = self._clock.adapting_s
        return late_s

    @property
    def total_s(self) -> float:
        """All pauses so far, including one that has just ended and that no beat has noticed yet."""
        return self._recorded_s + self._late_s()

    def _late_s(self) -> float:
        adapting_s = self._clock.adapting_s - self._adapted_s
        since_s = self._clock.now() - self._last_beat_at - adapting_s
        return adapting_s + max(0.0, since_s - LATE_PERIODS * resolve_seconds(self._period_s))
