"""Timeline: emulated time as a function of wall time, given by its changes of speed.

Emulated time is continuous and never decreases: the speed changes, but time does not jump. A change may lie in the
future, so that all processes that read it early enough apply it at the same instant.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

SPEED_MAX = 100_000.0
CHANGES_MAX = 512
"""Older ones are dropped: no decision looks back that far."""
ADAPTING_WALL_S = 5.0
"""How long after a change silence does not count: a lease that was requested at the old speed may expire in a moment at
the new one. This allows a heartbeat in flight and the next one, each with a floor of one wall second, to arrive on a
busy machine."""


@dataclass(frozen=True)
class SpeedChange:
    """From wall time `wall_s` on, which is `emulated_s` in emulated time (both seconds since the epoch), time runs at
    `speed` (emulated seconds per wall second; 0 is paused)."""

    wall_s: float
    emulated_s: float
    speed: float


@dataclass(frozen=True)
class Timeline:
    """Changes of speed in order, at least one; the first one's speed also applies before it."""

    changes: tuple[SpeedChange, ...]

    @classmethod
    def steady(cls, speed: float, wall_s: float, emulated_s: float) -> Timeline:
        return cls((SpeedChange(wall_s, emulated_s, speed),))

    @cached_property
    def _change_times(self) -> list[float]:
        return [each.wall_s for each in self.changes]

    def at(self, wall_s: float) -> SpeedChange:
        """The change in force at a wall time."""
        return self.changes[max(0, bisect_right(self._change_times, wall_s) - 1)]

    def emulated(self, wall_s: float) -> float:
        now = self.at(wall_s)
        return now.emulated_s + (wall_s - now.wall_s) * now.speed

    def speed(self, wall_s: float) -> float:
        return self.at(wall_s).speed

    def running_speed(self, wall_s: float) -> float:
        """The speed at a wall time or, if time is paused, the last nonzero speed; 1 if there was none."""
        known = self.changes[: max(1, self.count(wall_s))]
        return next((each.speed for each in reversed(known) if each.speed > 0), 1.0)

    def count(self, wall_s: float) -> int:
        """How many changes are in force by then."""
        return bisect_right(self._change_times, wall_s)

    def next_change(self, wall_s: float) -> float:
        """The wall time of the next change; infinity if none is planned."""
        later = bisect_right(self._change_times, wall_s)
        return self._change_times[later] if later < len(self._change_times) else math.inf

    def wall(self, emulated_s: float, since_wall_s: float) -> float:
        """The first wall time, not before `since_wall_s`, at which emulated time reaches `emulated_s`; infinity if time
        is paused for good before that."""
        if self.emulated(since_wall_s) >= emulated_s:
            return since_wall_s
        here = since_wall_s
        while True:
            now, until = self.at(here), self.next_change(here)
            if now.speed > 0:
                reached = now.wall_s + (emulated_s - now.emulated_s) / now.speed
                if reached <= until:
                    return max(reached, since_wall_s)
            if until == math.inf:
                return math.inf
            here = until

    def adapting(self, wall_s: float) -> float:
        """Emulated seconds so far that passed within `ADAPTING_WALL_S` after a change of speed; never decreases."""
        total_s, counted_until = 0.0, -math.inf
        for before, change in zip(self.changes, self.changes[1:], strict=False):
            if change.wall_s > wall_s:
                break
            if change.speed == before.speed:
                continue
            end = min(wall_s, change.wall_s + ADAPTING_WALL_S)
            begin = max(change.wall_s, counted_until)
            if end > begin:
                total_s += self.emulated(end) - self.emulated(begin)
            counted_until = max(counted_until, end)
        return total_s

    def periods(self, wall_s: float, seconds: float, floor_wall_s: float) -> float:
        """How many periods of `seconds` emulated seconds, none shorter than the wall-clock floor, have passed since the
        epoch; never decreases. All processes that number rounds by it agree."""
        first = self.changes[0]
        total = first.emulated_s / max(seconds, floor_wall_s * first.speed)
        for number, change in enumerate(self.changes):
            end = self._change_times[number + 1] if number + 1 < len(self._change_times) else math.inf
            end = min(end, wall_s)
            if number and end <= change.wall_s:
                break
            total += (end - change.wall_s) * change.speed / max(seconds, floor_wall_s * change.speed)
        return total

    # --- changes

    def changed(self, at_wall_s: float, speed: float) -> Timeline:
        """Change the speed from a wall time on. Changes planned for later are dropped."""
        known = tuple(each for each in self.changes if each.wall_s <= at_wall_s)
        change = SpeedChange(at_wall_s, self.emulated(at_wall_s), speed)
        return Timeline((*known, change)[-CHANGES_MAX:])

    def run_until(self, at_wall_s: float, speed: float, emulated_s: float, then: float) -> Timeline:
        """Run at `speed` from a wall time on until emulated time reaches `emulated_s`, and at `then` afterwards."""
        fast = self.changed(at_wall_s, speed)
        reached = fast.wall(emulated_s, at_wall_s)
        while fast.emulated(reached) < emulated_s:  # short by rounding of the wall time, times the speed
            reached = math.nextafter(reached, math.inf)
        end = SpeedChange(reached, fast.emulated(reached), then)
        return Timeline((*fast.changes, end)[-CHANGES_MAX:])
