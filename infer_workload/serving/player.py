"""Plays time on in every deployment of a process: as often as somebody sees it, and rests in between."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from infer_workload.serving.live.live_deployment import LiveDeployment
from matrixcommon.model.clock import Clock

log = logging.getLogger(__name__)

FOLLOWED_TURN_WALL_S = 0.02
"""How often time is played on while somebody reads a stream."""

LOADED_TURN_WALL_S = 0.1
"""And while only built-in load is served."""

IDLE_TURN_WALL_S = 1.0


class Player:
    """Of these deployments. `look_again` is called where an engine failed: it needs another view of its fabric."""

    def __init__(self, live: Mapping[str, LiveDeployment], clock: Clock, look_again: Callable[[], None]) -> None:
        self._live = live
        self._clock = clock
        self._look_again = look_again
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Something was submitted: look at what is due."""
        self._nudged.set()

    async def run(self) -> None:
        """For ever: play time on in every deployment, then rest until something is due."""
        while True:
            self._nudged.clear()
            began = time.perf_counter()
            turns = [self._play(live) for live in list(self._live.values())]
            caught_up = all(turns)
            spent = time.perf_counter() - began
            if caught_up:
                await self._rest(self._rest_wall_s())
            else:
                await asyncio.sleep(spent)  # half of a core at most, whatever the load

    def _play(self, live: LiveDeployment) -> bool:
        try:
            return live.play(self._clock.now())
        except Exception:
            log.exception("a deployment's engine failed; it is laid out again", extra={"deployment": live.name})
            live.fail("the engine failed and starts again")
            self._look_again()
            return True

    def _rest_wall_s(self) -> float | None:
        lives = self._live.values()
        if not lives:
            return None
        if any(live.stream_count for live in lives):
            return FOLLOWED_TURN_WALL_S
        if any((live.load is not None and live.serves) or live.activation.waiting for live in lives):
            return LOADED_TURN_WALL_S
        due = min(live.next_at() for live in lives)
        return min(IDLE_TURN_WALL_S, max(0.005, self._clock.wall_s(due - self._clock.now())))

    async def _rest(self, wall_s: float | None) -> None:
        """Until a nudge, or for that long. Not by wait_for: before Python 3.12 it can swallow a cancellation."""
        nudge = asyncio.ensure_future(self._nudged.wait())
        try:
            await asyncio.wait({nudge}, timeout=wall_s)
        finally:
            nudge.cancel()
