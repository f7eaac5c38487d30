"""Virtual time in an event loop: an hour of sleeping costs only the work done in it.

Time stands still while any callback is ready, and then jumps to the next scheduled one. Work for a thread runs
immediately in the loop, so callbacks run in the same order every time. Sockets are polled when nothing else is ready,
but never waited for while something is scheduled: everything that shares this time must be in this process.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any


class _Timer(asyncio.TimerHandle):
    """A timer that orders timers due at the same moment by when they were set."""

    __slots__ = ("number",)

    number: int

    def __lt__(self, other: Any) -> bool:
        when, others = self._when, other._when  # type: ignore[attr-defined]
        return when < others if when != others else self.number < getattr(other, "number", -1)


class VirtualTime:
    """The virtual time of one loop, in seconds, beginning at `start`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: float = 0.0) -> None:
        self.seconds = start
        self._loop: Any = loop
        self._poll: Callable[[float | None], list[Any]] = loop._selector.select  # type: ignore[attr-defined]
        self._numbers = count()

    def time(self) -> float:
        return self.seconds

    def select(self, timeout: float | None = None) -> list[Any]:
        """Replaces the selector's `select`. With timeout None it really waits, because nothing is scheduled."""
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
    """Make the loop's time virtual inside the `with` block, from 0 on. Raises TypeError for a loop that is not
    asyncio's own."""
    if not isinstance(loop, asyncio.SelectorEventLoop):
        raise TypeError(f"virtual time needs asyncio's own event loop, not {type(loop).__name__}")
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
    """Run the coroutine that `main` returns to completion in a new loop, and cancel tasks that are still running."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner, virtual_time(runner.get_loop()):
        return runner.run(main())
