"""ChangeFeed: the changes of one kind for all its watches, read from the journal once and kept for a while.

Each watch has only a position, the number up to which it has seen everything. Those that are up to date share the
newest changes, as in the watch cache of Kubernetes; one that is further behind reads the journal by itself until it has
caught up, so that a slow reader costs memory to nobody.

Waiting watches are released in turns: sending a change to hundreds of readers takes longer than writing it, and the
requests between two turns would otherwise wait for all of them. What changed meanwhile is sent together.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Gone
from matrixcommon.persistence.change_log import Change

KEPT_CHANGES_MAX, KEPT_BYTES_MAX = 200, 512 * 1024
PAGE_SIZE = 200
"""How many changes are read from the journal at once."""
TURN_SIZE = 20
"""How many watches are released in one turn."""
PAUSE_WALL_S = 0.001
"""For each released watch, the pause before the next turn: about twice what it takes to send it something."""


class Journal(Protocol):
    """What a feed needs of the `Database`."""

    @property
    def clock(self) -> Clock: ...

    @property
    def poll_period_wall_s(self) -> float:
        """How often other replicas' commits are looked for; infinite if there are none."""

    def may_have_changed(self, kind: str | None, since: int) -> bool: ...

    def read_changes(self, kind: str, rv: int, limit: int) -> tuple[list[Change], int]: ...


class WatchQueue:
    """Watches that wait for changes after their positions; `kind`: those of one kind only."""

    def __init__(self, journal: Journal, kind: str | None = None) -> None:
        self._journal = journal
        self._kind = kind
        self._waiting: dict[Future[None], int] = {}
        """In order of arrival, each with its position."""
        self._next_turn = -math.inf
        self._turn: TimerHandle | None = None
        self._poll: TimerHandle | None = None

    async def changed(self, since: int, within_s: float) -> None:
        """Return at this watch's turn after something changed after number `since`, or after `within_s` of the loop's
        time."""
        loop = asyncio.get_running_loop()
        waiter: Future[None] = loop.create_future()
        self._waiting[waiter] = since
        end = loop.call_later(within_s, _release, waiter)
        if self._poll is None and self._journal.poll_period_wall_s < math.inf:
            self._poll = loop.call_later(self._journal.poll_period_wall_s, self._look, loop)
        try:
            if self._journal.may_have_changed(self._kind, since):  # while this watch was sending
                self._plan_turn(loop)
            await waiter
        finally:
            end.cancel()
            del self._waiting[waiter]
            if not self._waiting:
                self._stop_timers()

    def notify(self) -> None:
        """Something was committed."""
        loop = next((waiter.get_loop() for waiter in self._waiting), None)
        if loop is not None and self._turn is None and any(map(self._is_due, self._waiting)):
            self._plan_turn(loop)

    def pause(self, wall_s: float) -> None:
        """Have no turn for so long."""
        loop = asyncio.get_running_loop()
        self._next_turn = max(self._next_turn, loop.time() + self._journal.clock.loop_s(wall_s))

    def _is_due(self, waiter: Future[None]) -> bool:
        return not waiter.done() and self._journal.may_have_changed(self._kind, self._waiting[waiter])

    def _plan_turn(self, loop: AbstractEventLoop) -> None:
        if self._turn is None:
            self._turn = loop.call_at(max(self._next_turn, loop.time()), self._take_turn, loop)

    def _take_turn(self, loop: AbstractEventLoop) -> None:
        self._turn = None
        due = [*islice(filter(self._is_due, self._waiting), TURN_SIZE + 1)]
        for waiter in due[:TURN_SIZE]:
            waiter.set_result(None)
        self.pause(min(len(due), TURN_SIZE) * PAUSE_WALL_S)
        if len(due) > TURN_SIZE:
            self._plan_turn(loop)

    def _look(self, loop: AbstractEventLoop) -> None:
        self._poll = loop.call_later(self._journal.poll_period_wall_s, self._look, loop)
        try:
            self.notify()
        except Exception:  # the database does not answer: each watch finds out by itself, and reports it
            for waiter in self._waiting:
                _release(waiter)

    def _stop_timers(self) -> None:
        for timer in (self._turn, self._poll):
            if timer is not None:
                timer.cancel()
        self._turn = self._poll = None


def _release(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class ChangeFeed:
    """The newest changes of one kind, and the watches that wait for more."""

    def __init__(self, journal: Journal, kind: str) -> None:
        self._journal = journal
        self._kind = kind
        self._queue = WatchQueue(journal, kind)
        self._kept: deque[Change] = deque()
        self._kept_bytes = 0
        self._start, self._end = 0, -1
        """All changes after the number `_start` up to `_end` are kept."""

    def notify(self) -> None:
        """Something was committed."""
        self._queue.notify()

    async def changed(self, since: int, within_s: float) -> None:
        """Return at this watch's turn after something of the kind changed, or after `within_s` of the loop's time."""
        await self._queue.changed(since, within_s)

    def read(self, rv: int) -> tuple[Sequence[Change], int]:
        """Changes after `rv`, oldest first, and the number up to which these are all. Raises Gone if the journal does
        not reach back that far, or not yet up to `rv`."""
        if self._end >= 0:
            try:
                self._extend()
            except Gone:  # nobody has read for longer than the journal is kept: each watch finds out by itself
                self._clear(0, -1)
        if self._start <= rv <= self._end:
            return [change for change in self._kept if change.rv > rv], self._end
        changes, end = self._read_page(rv)
        if rv > self._end:
            self._clear(rv, rv)
            self._keep(changes, end)
        return changes, end

    def _clear(self, start: int, end: int) -> None:
        self._kept.clear()
        self._kept_bytes, self._start, self._end = 0, start, end

    def _extend(self) -> None:
        """Read up to the newest change of any kind: a kind that seldom changes would otherwise fall behind what the
        journal keeps."""
        if self._journal.may_have_changed(None, self._end):
            self._keep(*self._read_page(self._end))

    def _read_page(self, rv: int) -> tuple[list[Change], int]:
        changes, newest = self._journal.read_changes(self._kind, rv, PAGE_SIZE)
        return changes, changes[-1].rv if len(changes) == PAGE_SIZE else newest

    def _keep(self, changes: list[Change], end: int) -> None:
        self._end = end
        self._kept.extend(changes)
        self._kept_bytes += sum(len(change.body) for change in changes)
        while len(self._kept) > KEPT_CHANGES_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            dropped = self._kept.popleft()
            self._kept_bytes -= len(dropped.body)
            self._start = dropped.rv
