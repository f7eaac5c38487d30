"""Whoever contains failures ends when it is cancelled, also where what it ran fails on the way there.

A database that refuses as a process stops (the lease cannot be handed back, a report not be written) makes another
error of the cancellation: taken for a failure like others, the work would begin anew, and the process never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.errors import Unavailable
from matrixcommon.workflows.workflow import Step, Workflow
from matrixcompute.operations.context import StepContext
from matrixcontainer.kubeapi.controllers.manager import Manager
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Workqueue
from services.chassis.periodic import Periodic, follow, supervise
from services.testing.clocks import LoopClock
from tests.matrixcompute.workflow_harness import runner_process

Work = Callable[[], Awaitable[Any]]

WITHIN_S = 300.0
"""Of virtual time: more than any pause before the next attempt."""


def until_cancelled(failure: Exception, began: asyncio.Event) -> Work:
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise failure

    return work


def followed(work: Work) -> Awaitable[None]:
    async def stream(since: int | None) -> AsyncIterator[WatchEvent]:
        await work()
        yield WatchEvent("BOOKMARK", 1, {})

    async def heard(event: WatchEvent | None) -> None: ...

    return follow(stream, heard)


def core() -> Any:
    return SimpleNamespace(now=asyncio.get_running_loop().time, record_failure=lambda failure, what: None)


def queued(work: Work) -> Awaitable[None]:
    class Queue(Workqueue[tuple[str, ...]]):
        async def reconcile(self, key: tuple[str, ...]) -> float | None:
            await work()
            return None

    queue = Queue(core())
    return queue.process(("default", "one"))


def managed(work: Work) -> Awaitable[None]:
    return Manager._supervise(SimpleNamespace(_core=core()), work)  # type: ignore[arg-type]


def periodic(work: Work) -> Awaitable[None]:
    return Periodic("watcher", work, LoopClock(), period_s=1.0).run()


CONTAINED = (supervise, followed, queued, managed, periodic)
NAMES = ("supervise", "follow", "Workqueue", "Manager", "Periodic")


@pytest.mark.looptime
@pytest.mark.parametrize("failure", [RuntimeError("it cannot be written"), Unavailable("it does not answer")])
@pytest.mark.parametrize("contained", CONTAINED, ids=NAMES)
async def test_what_fails_as_it_is_cancelled_ends(contained: Callable[[Work], Any], failure: Exception) -> None:
    began = asyncio.Event()
    running = asyncio.create_task(contained(until_cancelled(failure, began)))
    await began.wait()
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=WITHIN_S)
    assert ended, "it began anew"
    if running.cancelled():
        return
    assert running.exception() is failure, "what is not contained may be raised"


@pytest.mark.looptime
@pytest.mark.parametrize("contained", [supervise, queued, managed, periodic])
async def test_what_fails_in_a_group_is_begun_again(contained: Callable[[Work], Any]) -> None:
    """A group cancels whoever is in it; until Python 3.13 that counts after its end too."""
    attempts = 0

    async def fail() -> None:
        raise RuntimeError("one of the group")

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        with suppress(TimeoutError):  # another cancellation that is none
            async with asyncio.timeout(1.0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.Event().wait())

    async def again_and_again() -> None:
        while True:
            await contained(work)

    running = asyncio.create_task(again_and_again())
    await asyncio.sleep(WITHIN_S)
    assert attempts > 3
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=WITHIN_S)
    assert ended


@pytest.mark.looptime
@pytest.mark.parametrize("failure", [RuntimeError("it cannot be written"), Unavailable("it does not answer")])
async def test_a_step_that_fails_as_its_process_stops_is_not_begun_again(tmp_path: Path, failure: Exception) -> None:
    began = asyncio.Event()
    attempts = 0

    async def wait(work: StepContext) -> None:
        nonlocal attempts
        attempts += 1
        await until_cancelled(failure, began)()

    workflow = Workflow(
        "test", (Step(wait, deadline_s=90_000.0),), refused=lambda session, instance, refused, now: None,
        committed_at="wait", deadline_s=97_200.0,
    )  # fmt: skip
    async with runner_process(tmp_path, workflow) as process:
        process.open()
        process.runner.resume()
        await began.wait()
        async with asyncio.timeout(WITHIN_S):
            await process.runner.stop()
        assert attempts == 1
