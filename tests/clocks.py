"""Clocks that tests and benchmarks move themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from matrixcommon.model.clock import Steady


class LoopClock(Steady):
    """The running event loop's own time, from a fixed epoch: virtual where the loop is (looptime in tests)."""

    def __init__(self, epoch_s: float = 1_750_000_000.0) -> None:
        self._epoch_s = epoch_s

    def now(self) -> float:
        return self._epoch_s + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return seconds


class FixedClock(Steady):
    """A clock that stands until it is moved: for tables of pure decisions."""

    def __init__(self, at: float = 1_750_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        await asyncio.sleep(0)

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return seconds


class StandingClock(Steady):
    """Another clock's time, which sleeping does not move: who sleeps does so until something else wakes it."""

    def __init__(self, clock: FixedClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return seconds


class AtOnce(Executor):
    """Does what is submitted at once and where it stands: a virtual clock would run on while a thread works."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as wrong:
            done.set_exception(wrong)
        return done
