"""Time, passed in. Domain code asks a Clock and never the system.

All times are *emulated* seconds since the epoch. On a WallClock they are the wall's. On a ScaledClock an emulated
minute takes a wall second at scale 60: the hardware being emulated (provisioning, repair, serving) lives in this time.
What guards against slowness of the host itself (leases, probes) has a floor in wall time, `at_least_wall`, because a
laptop's scheduler does not get faster when the emulation does. Under a test's virtual event loop a LoopClock makes an
hour of sleeping free.

The speed of a running stack may change, to 0 as well (matrixcommon/emulation/stack_clock.py). So nobody keeps what
`scale` or `at_least_wall` said for longer than they need to decide something; `changes` and `changed` tell who waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What everything that knows time is given."""

    @property
    def scale(self) -> float:
        """Emulated seconds that pass in one second of the wall; 0 while time stands still."""

    @property
    def changes(self) -> int:
        """Differs before and after each change of the speed."""

    @property
    def adapting_s(self) -> float:
        """Emulated seconds so far that are not held against anybody's silence, because the speed had just changed."""

    def now(self) -> float:
        """Emulated seconds since the epoch; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many emulated seconds."""

    async def changed(self) -> None:
        """Return when the speed changes next."""

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        """The longer of an emulated duration and a wall-clock floor, in emulated seconds, at the present speed."""

    def periods(self, seconds: float, floor_wall_s: float) -> float:
        """How many periods, each `at_least_wall` of these two long, have passed since the epoch; never falls."""

    def wall_s(self, seconds: float) -> float:
        """Wall seconds until that many emulated ones have passed; infinity while time stands still."""

    def loop_s(self, wall_s: float) -> float:
        """How long the event loop is to wait for that many seconds of the wall: as long, unless its time is the
        emulated one."""


Seconds = float | Callable[[], float]
"""A duration in emulated seconds: a number, or what it is at the present speed."""


def seconds_now(duration: Seconds) -> float:
    return duration() if callable(duration) else duration


class Steady:
    """What a clock says whose speed never changes."""

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


def as_set(clock: Clock, seconds: float, floor_wall_s: float) -> float:
    """A duration that somebody may set, in emulated seconds: what is below the floor in wall time when emulated time
    runs fast is that floor; who sets less than the floor itself has that."""
    return clock.at_least_wall(seconds, min(seconds, floor_wall_s))


async def pause(clock: Clock, seconds: Seconds, woken: asyncio.Event) -> None:
    """That many emulated seconds from now on, or until the event. How many is asked again where the speed changes,
    since a floor in wall time is another number of them then."""
    began = clock.now()
    while not woken.is_set() and (left_s := began + seconds_now(seconds) - clock.now()) > 0:
        waits = [clock.sleep(left_s), woken.wait()]
        if not isinstance(clock, Steady):
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


class ScaledClock(Steady):
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
