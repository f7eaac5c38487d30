"""Background work of a process: watchers that run periodically or when nudged, and followers of another's changes.

A watcher is a reconciler: it takes no input, may run at any moment any number of times, and returns a sentence about
what it did. An exception is logged and counted, and the watcher runs again.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.cancellation import raise_if_cancelled
from matrixcommon.model.clock import Clock, pause
from matrixcommon.model.errors import Gone, MatrixError, Unavailable

if TYPE_CHECKING:  # a process without a database has periodic work too
    from matrixcommon.persistence.database_session import Database

log = logging.getLogger(__name__)

RETRY_WALL_S = 0.5
REST_WALL_S = 0.25
COMPACTION_PERIOD_S = 600.0
RETENTION_WALL_S = 600.0
HISTORY_S, HISTORY_WALL_S = 86_400.0, 3600.0


def history_s(clock: Clock) -> float:
    """How long finished objects, above all operations, are kept, in emulated seconds: a day of emulated time, or a wall
    hour if that is longer."""
    return clock.at_least_wall(HISTORY_S, HISTORY_WALL_S)


class Periodic:
    """Runs `action` every `period_s` emulated seconds (at least `floor_wall_s` wall seconds), and when nudged."""

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
        """`rest_s`: how long a nudge waits for more of them, so that a burst is one run; an urgent nudge does not
        wait."""
        self.name = name
        self._action = action
        self._clock = clock
        self._period = period_s, floor_wall_s
        self._rest = rest_s, rest_floor_wall_s
        self._nudged = asyncio.Event()
        self._urgent = asyncio.Event()
        self.runs = 0
        self.failures = 0
        self.last: object = None

    def nudge(self, urgent: bool = False) -> None:
        """Run again soon, without waiting for the period; if `urgent`, without waiting for the rest either."""
        self._nudged.set()
        if urgent:
            self._urgent.set()

    async def step(self) -> None:
        """Run once, containing any failure."""
        self.runs += 1
        try:
            self.last = await self._action()
        except MatrixError as refused:
            raise_if_cancelled(refused)
            self._log_refusal(refused)
        except Exception as wrong:
            raise_if_cancelled(wrong)
            if (why := _database_unavailable_reason(wrong)) is not None:
                return self._log_refusal(Unavailable(why))
            self.failures += 1
            self.last = wrong
            log.exception("watcher failed", extra={"watcher": self.name})

    def _log_refusal(self, refused: MatrixError) -> None:
        """Log a refusal, but only once if it repeats for the same reason."""
        self.failures += 1
        before, self.last = self.last, refused
        if isinstance(before, MatrixError) and (before.reason, before.message) == (refused.reason, refused.message):
            return
        log.warning("watcher refused", extra={"watcher": self.name, "reason": refused.reason, "why": refused.message})

    async def run(self) -> None:
        """Forever: run, then wait for the period or a nudge, whichever comes first."""
        while True:
            self._nudged.clear()
            self._urgent.clear()
            await self.step()
            await pause(self._clock, lambda: self._clock.at_least_wall(*self._period), self._nudged)
            await pause(self._clock, lambda: self._clock.at_least_wall(*self._rest), self._urgent)


def compaction(
    records: Database, clock: Clock, *, retention_s: float = 0.0, before_compaction: Callable[[], object] = lambda: None
) -> Periodic:
    """A watcher that drops changes older than `retention_s`, or ten wall minutes if that is longer."""

    async def compact() -> str:
        before_compaction()
        return f"{records.compact(clock.at_least_wall(retention_s, RETENTION_WALL_S))} changes dropped"

    return Periodic("compact", compact, clock, period_s=COMPACTION_PERIOD_S, floor_wall_s=60.0)


def _database_unavailable_reason(wrong: Exception) -> str | None:
    """Why the database cannot serve now; None for any other exception."""
    if "sqlalchemy.exc" not in sys.modules:
        return None  # this process has no database, and should not load SQLAlchemy
    from services.chassis.database import database_unavailable_reason

    return database_unavailable_reason(wrong)


EventHandler = Callable[[WatchEvent | None], Awaitable[None]]


async def follow(stream: Callable[[int | None], AsyncIterator[WatchEvent]], handle_event: EventHandler) -> None:
    """Forever: call `handle_event` with every event, and with None after every break, when events may have been
    missed."""
    since: int | None = None
    refusal = ""
    while True:
        try:
            async for event in stream(since):
                refusal = ""
                if event.type != "BOOKMARK":
                    await handle_event(event)
                since = event.rv
        except Gone:
            since = None
        except MatrixError as refused:
            raise_if_cancelled(refused)
            if refused.message != refusal:  # a service that is down is retried twice a second but logged once
                log.info("watch ended", extra={"why": refused.message})
            refusal = refused.message
        await handle_event(None)
        await asyncio.sleep(RETRY_WALL_S)


async def follow_replicas(records: Database, on_commit: Callable[[], None]) -> None:
    """Forever: call `on_commit` after commits of any replica, at most once per `REST_WALL_S`. Returns at once if the
    database has no other writers."""
    since = records.latest()
    while records.shared:
        await records.changed(30.0, since)
        since = records.latest()
        on_commit()
        await asyncio.sleep(REST_WALL_S)


def nudge_on_event(nudge: Callable[[], None]) -> EventHandler:
    """A callback for `follow` that nudges at every event."""

    async def handle_event(_: WatchEvent | None) -> None:
        nudge()

    return handle_event


async def supervise(work: Callable[[], Awaitable[object]]) -> None:
    """Run the work, restarting it after any failure; its end is always logged."""
    while True:
        try:
            await work()
            log.info("background task ended", extra={"task": repr(work)})
            return
        except Exception as wrong:
            raise_if_cancelled(wrong)
            if (why := _database_unavailable_reason(wrong)) is not None:
                log.warning("background task is waiting for the database", extra={"task": repr(work), "why": why})
            else:
                log.exception("background task failed", extra={"task": repr(work)})
        await asyncio.sleep(RETRY_WALL_S)
