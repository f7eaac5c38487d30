"""Clocks, passed in as dependencies. Domain code asks a Clock for the time, never the system.

All times are *emulated* seconds since the epoch. On a WallClock they equal wall time. On a ScaledClock with scale 60 an
emulated minute takes one wall second: the emulated hardware (provisioning, repair, serving) runs in this time.
Timeouts that guard against slowness of the host itself (leases, probes) have a floor in wall time, `at_least_wall`,
because a laptop's scheduler does not get faster when the emulation does. Under a test's virtual event loop a LoopClock
makes an hour of sleeping free.

The speed of a running stack may change, even to 0 (matrixcommon/emulation/stack_clock.py). Callers must therefore not
keep a value of `scale` or `at_least_wall` beyond the decision at hand; `changes` and `changed` notify those who wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The clock that is passed to everything that depends on time."""

    @property
    def scale(self) -> float:
        """Emulated seconds per wall second; 0 while time is paused."""

    @property
    def changes(self) -> int:
        """A token that differs before and after each change of speed."""

    @property
    def adapting_s(self) -> float:
        """Emulated seconds so far in which silence does not count as failure, because the speed had just changed."""

    def now(self) -> float:
        """Emulated seconds since the epoch; never decreases."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many emulated seconds."""

    async def changed(self) -> None:
        """Return when the speed changes next."""

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        """The longer of an emulated duration and a wall-clock floor, in emulated seconds, at the present speed."""

    def periods(self, seconds: float, floor_wall_s: float) -> float:
        """How many periods of `at_least_wall(seconds, floor_wall_s)` have passed since the epoch; never decreases."""

    def wall_s(self, seconds: float) -> float:
        """Wall seconds until that many emulated seconds have passed; infinity while time is paused."""

    def loop_s(self, wall_s: float) -> float:
        """How long the event loop must sleep for that many wall seconds: the same, unless the loop itself runs in
        emulated time."""


Seconds = float | Callable[[], float]
"""A duration in emulated seconds: a number, or a function that returns its value at the present speed."""


def resolve_seconds(duration: Seconds) -> float:
    return duration() if callable(duration) else duration


class FixedSpeedClock:
    """Base of clocks whose speed never changes."""

    scale = 1.0
    changes = 0
    adapting_s = 0.0

    async def changed(self) -> None:
        await asyncio.Event().wait()

    def periods(self, seconds: float, floor_wall_s: float) -> float:
        return self.now() / self.at_least_wall(seconds, floor_wall_s)

    def now(self) -> float:
        raise NotImplementedError

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        raise NotImplementedError

    def wall_s(self, seconds: float) -> float:
        return max(0.0, seconds) / self.scale

    def loop_s(self, wall_s: float) -> float:
        return wall_s


def with_wall_floor(clock: Clock, seconds: float, floor_wall_s: float) -> float:
    """A configured duration in emulated seconds, raised to the wall-clock floor where emulated time runs so fast that
    it would fall below it. A setting that is itself less than the floor is its own floor."""
    return clock.at_least_wall(seconds, min(seconds, floor_wall_s))


async def pause(clock: Clock, seconds: Seconds, woken: asyncio.Event) -> None:
    """Sleep for that many emulated seconds, or until the event is set. The duration is evaluated again when the speed
    changes, since a floor in wall time is then a different number of emulated seconds."""
    began = clock.now()
    while not woken.is_set() and (left_s := began + resolve_seconds(seconds) - clock.now()) > 0:
        waits = [clock.sleep(left_s), woken.wait()]
        if not isinstance(clock, FixedSpeedClock):
            waits.append(clock.changed())
        tasks = [asyncio.ensure_future(each) for each in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
        if tasks[0].done():
            return
    await asyncio.sleep(0)


class ScaledClock(FixedSpeedClock):
    """The wall clock, scaled from an anchor that all processes of a stack share.

    `anchor_wall_s` and `anchor_emulated_s` are the same instant on both clocks.
    """

    def __init__(self, scale: float = 1.0, anchor_wall_s: float = 0.0, anchor_emulated_s: float | None = None) -> None:
        self.scale = scale
        self._anchor_wall_s = anchor_wall_s
        self._anchor_emulated_s = anchor_wall_s if anchor_emulated_s is None else anchor_emulated_s

    def now(self) -> float:
        return self._anchor_emulated_s + (time.time() - self._anchor_wall_s) * self.scale

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.scale)

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return max(seconds, floor_wall_s * self.scale)


class WallClock(ScaledClock):
    """Emulated time equals wall time."""

    def __init__(self) -> None:
        super().__init__(1.0)
