"""A watcher runs on its period, soon after a nudge, and at once where that is urgent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import OperationalError

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.errors import Conflict, Unavailable
from services.chassis.periodic import Periodic, follow, supervise
from services.testing.clocks import LoopClock

PERIOD_S, REST_S = 60.0, 1.0
SOON = [
    ("nothing", [], [0, 61]),
    ("nudges that come together are one run, after a rest", [(0.2, False), (0.3, False)], [0, 1.2]),
    ("an urgent one ends the rest", [(0.2, False), (0.3, True)], [0, 0.3]),
    ("two urgent ones are two runs", [(0.2, True), (0.3, True)], [0, 0.2, 0.3]),
    ("a nudge after an urgent one rests again", [(0.2, True), (0.3, False)], [0, 0.2, 1.3]),
]


@pytest.mark.looptime
@pytest.mark.parametrize(("sentence", "nudges", "runs"), SOON, ids=[each[0] for each in SOON])
async def test_when_it_runs(sentence: str, nudges: list[tuple[float, bool]], runs: list[float]) -> None:
    clock, ran = LoopClock(), []

    async def action() -> None:
        ran.append(clock.now())

    watcher = Periodic("watcher", action, clock, period_s=PERIOD_S, rest_s=REST_S)
    running = asyncio.create_task(watcher.run())
    await asyncio.sleep(0)
    for at, urgent in nudges:
        asyncio.get_running_loop().call_later(at, watcher.nudge, urgent)
    await asyncio.sleep(PERIOD_S + 2 * REST_S - 0.5)
    running.cancel()
    assert [at - ran[0] for at in ran][: len(runs)] == pytest.approx(runs, abs=0.01)


@pytest.mark.looptime
async def test_what_is_refused_again_and_again_is_logged_once_and_a_fault_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A database that takes no writes is no fault of ours: a line, and no traceback."""
    read_only = OperationalError("UPDATE", {}, Exception("attempt to write a readonly database"))
    outcomes: list[Exception | None] = [
        *[read_only] * 3, *[Conflict("not yet")] * 2, None, Conflict("not yet"), *[RuntimeError("ours")] * 2,
    ]  # fmt: skip
    coming = iter(outcomes)

    async def action() -> None:
        if (wrong := next(coming)) is not None:
            raise wrong

    watcher = Periodic("watcher", action, LoopClock(), period_s=PERIOD_S)
    for _ in outcomes:
        await watcher.step()
    assert watcher.failures == 8
    logged = [(each.getMessage(), getattr(each, "reason", None), each.exc_info is not None) for each in caplog.records]
    assert logged == [
        ("watcher refused", "Unavailable", False),
        ("watcher refused", "Conflict", False),
        ("watcher refused", "Conflict", False),
        ("watcher failed", None, True),
        ("watcher failed", None, True),
    ]


@pytest.mark.looptime
async def test_a_task_begins_again_after_what_fails_it_and_a_database_is_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = OperationalError("SELECT", {}, Exception("canceling statement due to lock timeout"))
    outcomes = iter([away, RuntimeError("ours"), None])

    async def work() -> None:
        if (wrong := next(outcomes)) is not None:
            raise wrong

    await supervise(work)
    logged = [(each.levelname, each.exc_info is not None) for each in caplog.records if "background" in each.message]
    assert logged == [("WARNING", False), ("ERROR", True)]


@pytest.mark.looptime
async def test_who_is_followed_and_stays_away_is_logged_once_for_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Away, back, away again: each is asked for more than once, and every break is heard of."""
    asked, breaks, enough = 0, 0, asyncio.Event()

    async def stream(since: int | None) -> AsyncIterator[WatchEvent]:
        nonlocal asked
        asked += 1
        if asked == 10:
            yield WatchEvent("BOOKMARK", 1, {})
        else:
            raise Unavailable("it does not answer")

    async def heard(event: WatchEvent | None) -> None:
        nonlocal breaks
        breaks += event is None
        if breaks == 20:
            enough.set()

    with caplog.at_level(logging.INFO, "services.chassis.periodic"):
        running = asyncio.create_task(follow(stream, heard))
        await enough.wait()
        running.cancel()
    assert [each.message for each in caplog.records] == ["watch ended"] * 2
