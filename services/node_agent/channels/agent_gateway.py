"""One service's line to all agents of the fleet: reports up, specs down.

Reports go in batches: everybody's on a period (it renews the leases), and at once those that have news. Specs come
over a watch; the answer to every report repeats the newest, so an event that got lost heals by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Gone, MatrixError

log = logging.getLogger(__name__)

GATHER_S, GATHER_FLOOR_WALL_S = 1.0, 0.02
"""News is held back this long, so that nodes that change together report together."""
RETRY_WALL_S = 0.5


class Channel(Protocol):
    """What an uplink needs to know of one kind of agent and its service."""

    name: str

    async def send(self, nodes: list[str]) -> None:
        """Report these nodes and take up the specs in the answer. Raises MatrixError."""

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        """The service's specs as they change."""

    async def take_up(self, event: WatchEvent) -> None:
        """Hand one want to the agent it is for."""


class Uplink:
    """Runs one line: `news(node)` marks a node whose report would say something new."""

    def __init__(
        self,
        line: Channel,
        clock: Clock,
        period_s: float,
        reachable: Callable[[], Iterable[str]],
        remember: Callable[[], None],
    ) -> None:
        self._line = line
        self._clock = clock
        self._period_s = period_s
        self._reachable = reachable
        self._remember = remember
        self._news: set[str] = set()
        self._wake = asyncio.Event()

    def news(self, node: str) -> None:
        self._news.add(node)
        self._wake.set()

    async def report(self) -> None:
        """For ever: the whole fleet every period, those with news in between."""
        due_at = self._clock.now()
        while True:
            try:
                now = self._clock.now()
                everybody = now >= due_at
                reachable = list(self._reachable())
                batch = reachable if everybody else [node for node in reachable if node in self._news]
                self._news.clear()
                self._wake.clear()
                self._remember()
                if batch:
                    await self._line.send(batch)
                if everybody:
                    due_at = now + self._period_s
            except MatrixError as refused:
                log.warning("report refused", extra={"line": self._line.name, "why": refused.message})
                self._news.update(batch)
                await asyncio.sleep(RETRY_WALL_S)
                continue
            await self._pause(due_at - self._clock.now())

    async def _pause(self, seconds: float) -> None:
        sleep = asyncio.ensure_future(self._clock.sleep(max(0.0, seconds)))
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({sleep, wake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()
        await self._clock.sleep(self._clock.at_least_wall(GATHER_S, GATHER_FLOOR_WALL_S))

    async def listen(self) -> None:
        """For ever: take up specs as they are made; after a break from where it was, or from the present."""
        since: int | None = None
        while True:
            try:
                async for event in self._line.watch(since):
                    since = event.rv
                    if event.type in ("ADDED", "MODIFIED", "DELETED"):
                        await self._line.take_up(event)
            except Gone:
                since = None
            except MatrixError as refused:
                log.info("watch ended", extra={"line": self._line.name, "why": refused.message})
            await asyncio.sleep(RETRY_WALL_S)
