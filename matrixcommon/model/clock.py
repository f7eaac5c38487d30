"""Time, passed in. Domain code asks a Clock and never the system.

All times are *emulated* seconds since the epoch. On a WallClock they are the wall's. On a ScaledClock an emulated
minute takes a wall second at scale 60: the hardware being emulated (provisioning, repair, serving) lives in this time.
What guards against slowness of the host itself (leases, probes) has a floor in wall time, `at_least_wall`, because a
laptop's scheduler does not get faster when the emulation does. Under a test's virtual event loop a LoopClock makes an
hour of sleeping free.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What everything that knows time is given."""

    scale: float
    """Emulated seconds that pass in one second of the wall."""

    def now(self) -> float:
        """Emulated seconds since the epoch; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many emulated seconds."""

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        """The longer of an emulated duration and a wall-clock floor, in emulated seconds."""


def as_set(clock: Clock, seconds: float, floor_wall_s: float) -> float:
    """A duration that somebody may set, in emulated seconds: what is below the floor in wall time when emulated time
    runs fast is that floor; who sets less than the floor itself has that."""
    return clock.at_least_wall(seconds, min(seconds, floor_wall_s))


async def pause(clock: Clock, seconds: float, woken: asyncio.Event) -> None:
    """That many emulated seconds, or until the event."""
    either = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(woken.wait())]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in either:
            each.cancel()


class ScaledClock:
    """The wall clock, sped up from an anchor that all processes of a stack share.

    `anchor_wall_s` and `anchor_emulated_s` are one instant seen on both clocks.
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
    """Emulated time is the wall's time."""

    def __init__(self) -> None:
        super().__init__(1.0)
