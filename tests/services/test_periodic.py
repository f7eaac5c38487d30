"""A watcher runs on its period, soon after a nudge, and at once where that is urgent."""

from __future__ import annotations

import asyncio

import pytest

from services.chassis.periodic import Periodic
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
