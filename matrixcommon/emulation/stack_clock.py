"""The clock of a running stack: its speed is in a file that every process reads, and all apply changes at the same
instant.

A change is written with an effective time a little in the future (`LEAD_WALL_S`), and processes check the file more
often than that (`READ_PERIOD_WALL_S`). So no process computes a time with the old speed that others compute with the
new one, and emulated time is the same everywhere, continuous and never decreasing. The file is replaced atomically and
outlives all processes.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from weakref import WeakKeyDictionary

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.timeline import SpeedChange, Timeline

READ_PERIOD_WALL_S = 0.1
LEAD_WALL_S = 0.5
MARGIN_WALL_S = 0.2
"""How much of the lead must be left when the file is in place: one reading period, and as long again."""
WATCH_PERIOD_WALL_S = 0.2
SLEEP_WALL_S_MAX = 3600.0
TOLERANCE_S = 1e-6


class ClockUnreadable(MatrixError):
    """The file with the speed of emulated time is invalid."""


def read_timeline(file: Path) -> Timeline:
    """Raises FileNotFoundError, and ClockUnreadable if the content is invalid."""
    try:
        changes = json.loads(file.read_bytes())["changes"]
        return Timeline(tuple(SpeedChange(each["wall_s"], each["emulated_s"], each["speed"]) for each in changes))
    except (ValueError, KeyError, TypeError) as wrong:
        raise ClockUnreadable(f"{file} cannot be read: {wrong}") from wrong


def write_timeline(file: Path, timeline: Timeline, in_time: Callable[[], bool] = lambda: True) -> bool:
    """Replace the file atomically if `in_time()` still holds when the new one is ready. Return whether it was."""
    place = file.resolve()
    draft = place.with_name(place.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        with suppress(OSError):  # if permitted, keep the owner, so that e.g. a stack's containers can read it
            owner = place.stat()
            os.chown(draft, owner.st_uid, owner.st_gid)
        json.dump({"changes": [asdict(each) for each in timeline.changes]}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    if not in_time():
        draft.unlink()
        return False
    draft.replace(place)
    return True


def change_timeline(file: Path, change: Callable[[Timeline, float], Timeline]) -> Timeline:
    """Apply `change(timeline, from_wall_s)` shortly, in all processes at the same instant; one change at a time.
    Returns the timeline that was written. Raises FileNotFoundError if there is no clock."""
    place = file.resolve()
    with place.with_name(place.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while True:
            at_wall_s = time.time() + LEAD_WALL_S
            made = change(read_timeline(place), at_wall_s)
            if write_timeline(place, made, lambda at=at_wall_s: time.time() < at - MARGIN_WALL_S):  # type: ignore[misc]
                return made


class StackClock:
    """A Clock whose speed comes from a file. It may be used by any number of threads and event loops."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._timeline = read_timeline(file)
        self._read_at = -math.inf
        self._sleepers_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sleepers] = WeakKeyDictionary()

    def timeline(self, wall_s: float) -> Timeline:
        """The timeline at the present wall time `wall_s`, read again if it is older than `READ_PERIOD_WALL_S`."""
        if not 0 <= wall_s - self._read_at < READ_PERIOD_WALL_S:
            self.refresh()
            self._read_at = wall_s
        return self._timeline

    def refresh(self) -> bool:
        """Read the file if it has changed, and return whether it had. If it is damaged or missing, time continues as
        before."""
        with suppress(OSError, ClockUnreadable):
            found = self._file.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                self._timeline, self._stamp = read_timeline(self._file), stamp
                return True
        return False

    # --- the Clock protocol; always take the wall time first, then read the file

    def now(self) -> float:
        wall_s = time.time()
        return self.timeline(wall_s).emulated(wall_s)

    @property
    def scale(self) -> float:
        wall_s = time.time()
        return self.timeline(wall_s).speed(wall_s)

    @property
    def changes(self) -> int:
        wall_s = time.time()
        timeline = self.timeline(wall_s)
        return hash(timeline.at(wall_s))

    @property
    def adapting_s(self) -> float:
        wall_s = time.time()
        return self.timeline(wall_s).adapting(wall_s)

    def at_least_wall(self, seconds: float, floor_wall_s: float) -> float:
        return max(seconds, floor_wall_s * self.scale)

    def periods(self, seconds: float, floor_wall_s: float) -> float:
        wall_s = time.time()
        return self.timeline(wall_s).periods(wall_s, seconds, floor_wall_s)

    def wall_s(self, seconds: float) -> float:
        wall_s = time.time()
        timeline = self.timeline(wall_s)
        return timeline.wall(timeline.emulated(wall_s) + seconds, wall_s) - wall_s

    def loop_s(self, wall_s: float) -> float:
        return wall_s

    async def sleep(self, seconds: float) -> None:
        due_s = self.now() + seconds
        await asyncio.sleep(0)
        while (left_s := due_s - self.now()) > TOLERANCE_S:
            await self._sleepers().sleep(lambda left_s=left_s: self.wall_s(left_s))  # type: ignore[misc]

    async def changed(self) -> None:
        before = self.changes
        while self.changes == before:
            await self._sleepers().sleep(self._until_next_change)

    def _until_next_change(self) -> float:
        wall_s = time.time()
        return self.timeline(wall_s).next_change(wall_s) - wall_s

    def _sleepers(self) -> _Sleepers:
        loop = asyncio.get_running_loop()
        found = self._sleepers_by_loop.get(loop)
        if found is None:
            found = self._sleepers_by_loop[loop] = _Sleepers(self, loop)
        return found


class _Sleepers:
    """The sleepers in one event loop; all are woken when the file has changed, to recompute their remaining time."""

    def __init__(self, clock: StackClock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._sleepers: set[asyncio.Future[None]] = set()
        self._seen = clock._timeline
        self._watching = False

    async def sleep(self, wall_s: Callable[[], float]) -> None:
        """Sleep until that many wall seconds have passed or the file has changed."""
        sleeper = self._loop.create_future()
        handle = self._loop.call_later(min(max(0.0, wall_s()), SLEEP_WALL_S_MAX), _wake, sleeper)
        self._sleepers.add(sleeper)
        if not self._watching:
            self._watching = True
            self._seen = self._clock._timeline
            self._loop.call_later(WATCH_PERIOD_WALL_S, self._watch)
        try:
            await sleeper
        finally:
            handle.cancel()
            self._sleepers.discard(sleeper)

    def _watch(self) -> None:
        self._clock.timeline(time.time())
        if self._clock._timeline is not self._seen:
            self._seen = self._clock._timeline
            for sleeper in list(self._sleepers):
                _wake(sleeper)
        self._watching = bool(self._sleepers)
        if self._watching:
            self._loop.call_later(WATCH_PERIOD_WALL_S, self._watch)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
