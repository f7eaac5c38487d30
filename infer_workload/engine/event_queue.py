"""The event queue of an engine: planned actions in order of time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

Event = tuple[float, int, Callable[..., None], tuple[object, ...]]


class EventQueue:
    """Actions by time; those of one moment run in the order in which they were added. `due`: the time of the first."""

    __slots__ = ("_events", "_sequence", "due")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._sequence = 0
        self.due = inf

    def schedule(self, moment: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan a call of `action(now, *arguments)` at that moment; never if that is infinity."""
        if moment < inf:
            self._sequence += 1
            heappush(self._events, (moment, self._sequence, action, arguments))
            self.due = self._events[0][0]

    def run(self, now: float) -> None:
        """Remove and run the first action."""
        _, _, action, arguments = heappop(self._events)
        self.due = self._events[0][0] if self._events else inf
        action(now, *arguments)
