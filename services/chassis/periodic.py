"""Runs a watcher on a period or when nudged, one run at a time.

A watcher converges what the world moved: it takes no input, may be run at any moment any number of times, and returns
a sentence about what it did. What it raises is logged and counted, and it comes round again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError

log = logging.getLogger(__name__)


class Periodic:
    """`action` every `period_s` emulated seconds (never more often than `floor_wall_s` of the wall), or at a nudge."""

    def __init__(
        self,
        name: str,
        action: Callable[[], Awaitable[object]],
        clock: Clock,
        *,
        period_s: float,
        floor_wall_s: float = 0.5,
        rest_s: float = 0.0,
        rest_floor_wall_s: float = 0.0,
    ) -> None:
        """`rest_s`: how long to rest after a run whatever happens, so that a burst of nudges is one run."""
        self.name = name
        self._action = action
        self._clock = clock
        self._period_s = clock.at_least_wall(period_s, floor_wall_s)
        self._rest_s = clock.at_least_wall(rest_s, rest_floor_wall_s)
        self._nudged = asyncio.Event()
        self.runs = 0
        self.failures = 0
        self.last: object = None

    def nudge(self) -> None:
        """Run again soon, without waiting for the period."""
        self._nudged.set()

    async def step(self) -> None:
        """One run, its failure contained."""
        self.runs += 1
        try:
            self.last = await self._action()
        except MatrixError as refused:
            self.failures += 1
            self.last = refused
            log.warning(
                "watcher refused", extra={"watcher": self.name, "reason": refused.reason, "why": refused.message}
            )
        except Exception as wrong:
            self.failures += 1
            self.last = wrong
            log.exception("watcher failed", extra={"watcher": self.name})

    async def run(self) -> None:
        """For ever: a run, then the period or a nudge, whichever comes first."""
        while True:
            self._nudged.clear()
            await self.step()
            pause = asyncio.ensure_future(self._clock.sleep(self._period_s))
            nudge = asyncio.ensure_future(self._nudged.wait())
            try:
                await asyncio.wait({pause, nudge}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                nudge.cancel()
            await self._clock.sleep(self._rest_s)
