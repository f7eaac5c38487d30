"""The clock of a stack in one process, which follows the event loop's time, and an executor that takes no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from matrixcommon.model.clock import FixedSpeedClock

EPOCH_S = 1_750_000_000.0
"""Emulated start time of a stack without earlier state."""


class LoopClock(FixedSpeedClock):
    """The running event loop's time, counted from a fixed epoch: virtual if the loop's time is.

    `time_scale` is that of the stack to imitate: durations that guard against a slow host have a floor in wall time
    (`Clock.at_least_wall`), which is that many times as long in emulated time."""

    def __init__(self, epoch_s: float = EPOCH_S, time_scale: float = 0.0) -> None:
        """`time_scale` 0: the host is never slow, so there are no floors."""
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


class InlineExecutor(Executor):
    """An executor that runs each submitted call immediately in the caller's thread: with a real thread, virtual time
    would run on while it works."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as wrong:
            done.set_exception(wrong)
        return done
