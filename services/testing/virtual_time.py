"""Virtual time in an event loop: an hour of sleeping costs what is done in it, and nothing else.

Time stands while anybody has something to do, and then goes to the next moment for which something is scheduled. What
would run in a thread runs at once, so the same callbacks come in the same order each time. Sockets are looked at
whenever there is nothing else to do, but nobody waits for them while something is scheduled: what is to share this time
has to be in this process.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any


class _Timer(asyncio.TimerHandle):
    """Of those that are due at the same moment, who was set first comes first, whoever else has set one meanwhile."""

    __slots__ = ("number",)

    number: int

    def __lt__(self, other: Any) -> bool:
        when, others = self._when, other._when  # type: ignore[attr-defined]
        return when < others if when != others else self.number < getattr(other, "number", -1)


class VirtualTime:
    """The time of one loop, in seconds from `start`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: float = 0.0) -> None:
        self.seconds = start
        self._loop: Any = loop
        self._poll: Callable[[float | None], list[Any]] = loop._selector.select  # type: ignore[attr-defined]
        self._numbers = count()

    def time(self) -> float:
        return self.seconds

    def select(self, timeout: float | None = None) -> list[Any]:
        """In place of the selector's: None is waited for truly, since nothing is scheduled."""
        if timeout is None:
            return self._poll(None)
        if not (ready := self._poll(0)) and timeout > 0:
            self.seconds = max(self.seconds, self._loop._scheduled[0].when())  # to the bit, however it got there
        return ready

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self._loop, context)
        timer.number = next(self._numbers)
        heapq.heappush(self._loop._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        try:
            done.set_result(func(*args))
        except Exception as wrong:
            done.set_exception(wrong)
        return done


@contextmanager
def virtual_time(loop: asyncio.AbstractEventLoop) -> Iterator[VirtualTime]:
    """The loop's time is virtual within, from 0 on. Raises TypeError for a loop that is not asyncio's own."""
    if not isinstance(loop, asyncio.SelectorEventLoop):
        raise TypeError(f"virtual time needs an event loop of asyncio's own, which {type(loop).__name__} is not")
    of: Any = loop
    virtual = VirtualTime(loop)
    before = of._selector.select
    of.time, of._selector.select, of.run_in_executor = virtual.time, virtual.select, virtual.run_in_executor
    of.call_at = virtual.call_at
    try:
        yield virtual
    finally:
        of._selector.select = before
        del of.time, of.run_in_executor, of.call_at


def run_in_virtual_time(main: Callable[[], Any]) -> Any:
    """Run the coroutine that `main` makes to its end, in a loop of its own; what is left running is cancelled."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner, virtual_time(runner.get_loop()):
        return runner.run(main())
