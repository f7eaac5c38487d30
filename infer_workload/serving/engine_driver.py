"""Advances every deployment of a process with the clock: often while someone watches, rarely otherwise."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from infer_workload.serving.live.live_deployment import LiveDeployment
from matrixcommon.model.clock import Clock

log = logging.getLogger(__name__)

STREAMED_TURN_WALL_S = 0.02
"""Wall seconds between turns while a client reads a stream."""

LOADED_TURN_WALL_S = 0.1
"""Wall seconds between turns while only built-in load is served."""

IDLE_TURN_WALL_S = 1.0
"""The longest time between turns, wall seconds."""


class EngineDriver:
    """Advances these deployments. `enqueue_fabric` is called when an engine failed and needs a new view of its
    fabric."""

    def __init__(self, live: Mapping[str, LiveDeployment], clock: Clock, enqueue_fabric: Callable[[], None]) -> None:
        self._live = live
        self._clock = clock
        self._enqueue_fabric = enqueue_fabric
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Take the next turn at once, as something was submitted."""
        self._woken.set()

    async def run(self) -> None:
        """Forever: advance every deployment to now, then rest until something is due."""
        while True:
            self._woken.clear()
            began = time.perf_counter()
            turns = [self._advance(live) for live in list(self._live.values())]
            caught_up = all(turns)
            spent = time.perf_counter() - began
            if caught_up:
                await self._sleep(self._sleep_wall_s())
            else:
                await asyncio.sleep(spent)  # uses at most half a core under any load

    def _advance(self, live: LiveDeployment) -> bool:
        try:
            return live.advance(self._clock.now())
        except Exception:
            log.exception("a deployment's engine failed; laying it out again", extra={"deployment": live.name})
            live.fail("the engine failed and is restarting")
            self._enqueue_fabric()
            return True

    def _sleep_wall_s(self) -> float | None:
        deployments = self._live.values()
        if not deployments:
            return None
        if any(live.stream_count for live in deployments):
            return STREAMED_TURN_WALL_S
        if any((live.load is not None and live.serves) or live.activation.waiting for live in deployments):
            return LOADED_TURN_WALL_S
        due = min(live.next_event_at() for live in deployments)
        return min(IDLE_TURN_WALL_S, max(0.005, self._clock.wall_s(due - self._clock.now())))

    async def _sleep(self, wall_s: float | None) -> None:
        """Wait for a nudge, at most that long. `wait_for` can swallow a cancellation before Python 3.12."""
        nudge = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({nudge}, timeout=wall_s)
        finally:
            nudge.cancel()
