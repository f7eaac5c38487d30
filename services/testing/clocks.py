"""Clocks of a stack in one process: the event loop's own time, and threads that take none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from matrixcommon.model.clock import Steady

EPOCH_S = 1_750_000_000.0
"""Where the time of a stack that begins from nothing starts."""


class LoopClock(Steady):
    """The running event loop's own time, from a fixed epoch: virtual where the loop is.

    `time_scale` is that of the stack that this one is to behave like: what guards against slowness of the host has a
    floor in wall time (`Clock.at_least_wall`), which is that many times as long in emulated time."""

    def __init__(self, epoch_s: float = EPOCH_S, time_scale: float = 0.0) -> None:
        """`time_scale` 0: a host that is never slow, without floors."""
        self._epoch_s = epoch_s
        self._time_scale = time_scale

    def now(self) -> float:
        return self._epoch_s + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return max(seconds, floor_wall_s * self._time_scale)

    def loop_s(self, wall_s: float) -> float:
        return wall_s * max(1.0, self._time_scale)


class AtOnce(Executor):
    """Does what is submitted at once and where it stands: a virtual clock would run on while a thread works."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as wrong:
            done.set_exception(wrong)
        return done
