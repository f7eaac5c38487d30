"""Clocks that tests and benchmarks move themselves."""

from __future__ import annotations

import asyncio

import looptime

from matrixcommon.model.clock import FixedSpeedClock
from services.testing.clocks import InlineExecutor, LoopClock

__all__ = ["NOOP_CYCLES", "InlineExecutor", "FixedClock", "LoopClock", "StandingClock", "virtual_loop"]

NOOP_CYCLES = 0
"""How often a loop of looptime goes round with nothing to do before its time passes. A loop asks to wait only once nobody
is ready, so its own 42 change nothing, and are two of three rounds that a story takes."""


def virtual_loop() -> asyncio.AbstractEventLoop:
    """A new event loop whose time is virtual, as that of tests marked `looptime`."""
    return looptime.new_event_loop(noop_cycles=NOOP_CYCLES)


class FixedClock(FixedSpeedClock):
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


class StandingClock(FixedSpeedClock):
    """Another clock's time, which sleeping does not move: who sleeps does so until something else wakes it."""

    def __init__(self, clock: FixedClock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return seconds
