"""The clock of a running stack: all that read its file tell one time, and who sleeps is woken in time."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from matrixcommon.emulation.stack_clock import (
    ClockUnreadable,
    StackClock,
    change_timeline,
    read_timeline,
    write_timeline,
)
from matrixcommon.model.clock import pause
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.model.timeline import ADAPTING_WALL_S, Timeline


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "clock.json"
    now = time.time()
    write_timeline(file, Timeline.steady(1.0, now, now))
    return file


def set_speed(file: Path, value: float) -> Timeline:
    return change_timeline(file, lambda timeline, at: timeline.changed(at, value))


def test_all_readers_agree_on_the_time_across_changes(file: Path) -> None:
    """Threads that read as fast as they can, each with a clock of its own, compared by the wall."""
    stop = threading.Event()

    def reader() -> list[tuple[float, float, float]]:
        clock, seen = StackClock(file), []
        while not stop.is_set():
            before = time.time()
            shown = clock.now()
            seen.append((before, shown, time.time()))
            time.sleep(0.001)
        return seen

    with ThreadPoolExecutor(4) as readers:
        futures = [readers.submit(reader) for _ in range(4)]
        for value in (600.0, 0.0, 60.0):
            made = set_speed(file, value)
            while time.time() < made.changes[-1].wall_s + 0.1:
                time.sleep(0.01)
        stop.set()
        readings = [future.result() for future in futures]
    final = read_timeline(file)
    assert [each.speed for each in final.changes] == [1.0, 600.0, 0.0, 60.0]
    for seen in readings:
        assert all(b[1] >= a[1] for a, b in pairwise(seen))
        for before, emulated, after in seen:
            assert final.emulated(before) - 1e-6 <= emulated <= final.emulated(after) + 1e-6


def test_concurrent_changes_are_serialised(file: Path) -> None:
    with ThreadPoolExecutor(4) as askers:
        list(askers.map(lambda value: set_speed(file, value), [2.0, 3.0, 4.0, 5.0]))
    changes = read_timeline(file).changes
    assert sorted(each.speed for each in changes) == [1.0, 2.0, 3.0, 4.0, 5.0]
    for a, b in pairwise(changes):
        assert b.emulated_s == pytest.approx(a.emulated_s + (b.wall_s - a.wall_s) * a.speed)


async def test_a_sleeper_wakes_according_to_the_new_speed(file: Path) -> None:
    clock = StackClock(file)
    sleeping = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    set_speed(file, 100_000.0)
    async with asyncio.timeout(5):
        await sleeping


async def test_a_sleeper_continues_when_paused_time_resumes(file: Path) -> None:
    made = set_speed(file, 0.0)
    await asyncio.sleep(made.changes[-1].wall_s - time.time() + 0.01)
    clock = StackClock(file)
    assert clock.scale == 0
    assert clock.wall_s(1) == float("inf")
    assert clock.at_least_wall(5, 60) == 5
    at = clock.now()
    sleeping = asyncio.create_task(clock.sleep(0.5))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await asyncio.shield(sleeping)
    assert clock.now() == at
    set_speed(file, 10.0)
    async with asyncio.timeout(5):
        await sleeping
    assert clock.now() >= at + 0.5 - 1e-3


async def test_a_period_with_a_floor_is_recomputed_when_the_speed_changes(file: Path) -> None:
    """At 100,000 a floor of 5 ms of the wall is 500 s; back at 1 the ten seconds themselves have long passed."""
    made = set_speed(file, 100_000.0)
    await asyncio.sleep(made.changes[-1].wall_s - time.time() + 0.01)
    clock = StackClock(file)
    waiting = asyncio.create_task(pause(clock, lambda: clock.at_least_wall(10, 3600), asyncio.Event()))
    set_speed(file, 1.0)
    async with asyncio.timeout(5):
        await waiting


async def test_a_change_is_notified_and_counted(file: Path) -> None:
    clock = StackClock(file)
    before = clock.changes
    changed = asyncio.create_task(clock.changed())
    await asyncio.sleep(0)
    made = set_speed(file, 60.0)
    async with asyncio.timeout(5):
        await changed
    assert time.time() >= made.changes[-1].wall_s
    assert clock.changes != before


async def test_silence_right_after_a_change_does_not_count(file: Path) -> None:
    clock = StackClock(file)
    pauses = ProcessPauses(clock, lambda: clock.at_least_wall(5, 1))
    pauses.record_beat()
    made = set_speed(file, 600.0)
    await asyncio.sleep(made.changes[-1].wall_s - time.time() + 0.2)
    forgiven = pauses.total_s
    passed = clock.now() - made.changes[-1].emulated_s
    assert forgiven == pytest.approx(passed, abs=60)
    assert passed < 600 * ADAPTING_WALL_S
    assert pauses.record_beat() >= forgiven
    assert not pauses.stalled


def test_an_invalid_file_is_ignored_while_running_and_refused_at_startup(file: Path) -> None:
    clock = StackClock(file)
    before = clock.now()
    file.write_text("{")
    assert clock.refresh() is False
    assert before <= clock.now() <= before + 60
    with pytest.raises(ClockUnreadable, match="cannot be read"):
        StackClock(file)
    file.write_text(json.dumps({"changes": [{"wall_s": 1}]}))
    with pytest.raises(ClockUnreadable):
        StackClock(file)


def test_a_change_written_too_late_is_rescheduled(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes its time: nothing is announced that readers might learn of after it took force."""
    slow = iter([1.0, 0.0])
    real = write_timeline

    def writes(place: Path, timeline: Timeline, in_time: object) -> bool:
        time.sleep(next(slow))
        return real(place, timeline, in_time)  # type: ignore[arg-type]

    monkeypatch.setattr("matrixcommon.emulation.stack_clock.write_timeline", writes)
    made = set_speed(file, 60.0)
    assert made.changes[-1].wall_s > time.time()
    assert [each.speed for each in read_timeline(file).changes] == [1.0, 60.0]
