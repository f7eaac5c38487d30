"""How emulated time runs, as a value: from which instant on at which speed.

Emulated time is a function of the wall's that is continuous and never falls: a speed changes, time does not jump. A
change may lie in the future, so that whoever reads of it early enough takes it up at the same instant as all others.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

SPEED_MAX = 100_000.0
CHANGES_KEPT = 512
"""Older ones are of no use to anybody: nothing that is judged goes back so far."""
ADAPTING_WALL_S = 5.0
"""So long after a change nobody's silence is counted: a lease that was asked for at the old speed may be over in a
moment at the new one. Time for a heartbeat on its way and the next, with a floor of one second of the wall each, to
arrive through a machine that is busy."""


@dataclass(frozen=True)
class SpeedChange:
    """From `wall_s` on, which is `emulated_s` in emulated time (seconds since the epoch), at that `speed` (emulated
    seconds in a second of the wall; 0 stands still)."""

    wall_s: float
    emulated_s: float
    speed: float


@dataclass(frozen=True)
class Timeline:
    """Changes of speed in order, at least one; before the first its speed holds backwards."""

    changes: tuple[SpeedChange, ...]

    @classmethod
    def steady(cls, speed: float, wall_s: float, emulated_s: float) -> Timeline:
        return cls((SpeedChange(wall_s, emulated_s, speed),))

    @cached_property
    def _walls(self) -> list[float]:
        return [each.wall_s for each in self.changes]

    def at(self, wall_s: float) -> SpeedChange:
        """The change that is in force at an instant of the wall."""
        return self.changes[max(0, bisect_right(self._walls, wall_s) - 1)]

    def emulated(self, wall_s: float) -> float:
        now = self.at(wall_s)
        return now.emulated_s + (wall_s - now.wall_s) * now.speed

    def speed(self, wall_s: float) -> float:
        return self.at(wall_s).speed

    def running_speed(self, wall_s: float) -> float:
        """The speed at an instant, or, where time stands still, the last at which it ran; 1 where it never did."""
        known = self.changes[: max(1, self.count(wall_s))]
        return next((each.speed for each in reversed(known) if each.speed > 0), 1.0)

    def count(self, wall_s: float) -> int:
        """How many changes have come into force by then."""
        return bisect_right(self._walls, wall_s)

    def next_change(self, wall_s: float) -> float:
        """When the speed changes next; infinity where nothing is planned."""
        later = bisect_right(self._walls, wall_s)
        return self._walls[later] if later < len(self._walls) else math.inf

    def wall(self, emulated_s: float, since_wall_s: float) -> float:
        """The first instant of the wall, not before `since_wall_s`, at which emulated time has come so far; infinity
        where it stands still for ever before."""
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
        """Emulated seconds that have passed so far within `ADAPTING_WALL_S` of changes of speed; never falls."""
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
        """How many periods of so many emulated seconds, none shorter than the floor of the wall, have passed since the
        epoch; never falls. Whoever counts rounds by it counts as all others do."""
        first = self.changes[0]
        total = first.emulated_s / max(seconds, floor_wall_s * first.speed)
        for number, change in enumerate(self.changes):
            end = self._walls[number + 1] if number + 1 < len(self._walls) else math.inf
            end = min(end, wall_s)
            if number and end <= change.wall_s:
                break
            total += (end - change.wall_s) * change.speed / max(seconds, floor_wall_s * change.speed)
        return total

    # --- changes

    def changed(self, at_wall_s: float, speed: float) -> Timeline:
        """Another speed from an instant on. What was planned for later is planned no more."""
        known = tuple(each for each in self.changes if each.wall_s <= at_wall_s)
        change = SpeedChange(at_wall_s, self.emulated(at_wall_s), speed)
        return Timeline((*known, change)[-CHANGES_KEPT:])

    def run_until(self, at_wall_s: float, speed: float, emulated_s: float, then: float) -> Timeline:
        """At `speed` from an instant on until emulated time has come so far, and `then` at that one."""
        fast = self.changed(at_wall_s, speed)
        reached = fast.wall(emulated_s, at_wall_s)
        while fast.emulated(reached) < emulated_s:  # by less than the wall's clock can tell, times the speed
            reached = math.nextafter(reached, math.inf)
        end = SpeedChange(reached, fast.emulated(reached), then)
        return Timeline((*fast.changes, end)[-CHANGES_KEPT:])
