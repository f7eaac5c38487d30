"""What an engine has planned for moments to come, in their order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

Event = tuple[float, int, Callable[..., None], tuple[object, ...]]


class EventQueue:
    """Actions at moments; of one moment, in the order in which they were planned. `due` is the first of them."""

    __slots__ = ("_events", "_sequence", "due")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._sequence = 0
        self.due = inf

    def at(self, moment: float, action: Callable[..., None], *arguments: object) -> None:
        """Call `action(now, *arguments)` at that moment; never, where that is at no time."""
        if moment < inf:
            self._sequence += 1
            heappush(self._events, (moment, self._sequence, action, arguments))
            self.due = self._events[0][0]

    def run(self, now: float) -> None:
        """The first of them."""
        _, _, action, arguments = heappop(self._events)
        self.due = self._events[0][0] if self._events else inf
        action(now, *arguments)
