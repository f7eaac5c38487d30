"""Two replicas of MatrixResource and of MatrixLink: at each step of their workflows the one that leads is killed, or paused
until the other has gone further; the other continues within the lease, and who wakes up changes nothing.

Which workflows and steps there are is read off the tables, as in `test_drain_and_room_mishaps`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.api.client import list_all
from matrixcommon.model.errors import StaleLeader
from matrixcommon.model.fencing import FENCE
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.transaction import GroupTransaction
from matrixcommon.workflows.workflow import Step, StepPending, Workflow
from matrixlink.maintenance.drain_workflow import WORKFLOWS as DRAINS
from matrixresource.defragmentation import workflows as rooms
from services.chassis.leadership import RENEWALS_PER_LEASE
from services.link import controllers as link_controllers
from tests.simulation.workflows.test_drain_and_room_mishaps import (
    CHIPS,
    ROOM_STEPS,
    all_put_back,
    as_the_drains_say,
    begun,
    drain,
    ended,
    nothing_is_left,
    scattered,
    serving,
)
from tests.small_stack import ReplicatedStack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(900)]

KINDS = ("killed_before", "killed_after", "paused_before", "paused_after")
LEASE_S = 3.0
TAKEN_OVER_S = LEASE_S * (1 + 2 / RENEWALS_PER_LEASE)
"""A lease without renewals, and a look at each end of it."""


class ReplicatedNeighbours(ReplicatedStack):
    """Two of MatrixResource and two of MatrixLink."""

    replicated = ("resource", "link")


@dataclass
class LeaderMishaps:
    """What befalls the leader of `service` at which step, once, and how long the other took to lead (s)."""

    service: str
    coming: dict[tuple[str, str], str]
    stack: ReplicatedStack | None = None
    took_over: dict[tuple[str, str], float] = field(default_factory=dict)
    woken: dict[tuple[str, str], str] = field(default_factory=dict)
    """What came of the step that a paused leader took when it woke up."""
    written: list[int] = field(default_factory=list)
    """The generations in which something was committed, in that order."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time: two pauses of one replica would be one."""
    restarts: set[asyncio.Task[None]] = field(default_factory=set)

    def wrapped(self, workflows: Mapping[str, Workflow[Any]]) -> dict[str, Workflow[Any]]:
        return {
            verb: replace(workflow, steps=tuple(self._exposed(verb, step) for step in workflow.steps))
            for verb, workflow in workflows.items()
        }

    def noting(self, commit: Callable[[Database, GroupTransaction], None]) -> Callable[..., None]:
        """What commits, with a note of the leader in whose name."""

        def noted(records: Database, group: GroupTransaction) -> None:
            commit(records, group)
            fence = FENCE.get()
            if fence is not None and fence.name == self.service and group.newest > (group.before or 0):
                self.written.append(fence.generation)

        return noted

    def _exposed(self, verb: str, step: Step[Any]) -> Step[Any]:
        async def do(work: Any) -> None:
            at = verb, step.name
            if self.stack is None or at not in self.coming:
                await step.do(work)
                return
            async with self.turn:
                await one_leads(self.stack, self.service)
                what, when = self.coming.pop(at).split("_")
                if when == "after":
                    with contextlib.suppress(StepPending):
                        await step.do(work)
                if what == "paused":
                    self.woken[at] = "nothing to do"
                    await self._paused(at)
            if what == "killed":
                await self._killed(at)
            try:
                await step.do(work)
            except StaleLeader:
                self.woken[at] = "refused"
                raise

        do.__name__ = step.name
        return replace(step, do=do)

    def _seat(self) -> str:
        """Of the replica in whose name a step is taken."""
        assert self.stack is not None
        fence = FENCE.get()
        assert fence is not None
        replicas = self.stack.replicas(self.service)
        return next(name for name, each in replicas.items() if each.generation == fence.generation)

    async def _killed(self, at: tuple[str, str]) -> None:
        """The process ends without a word, and comes back once the other leads."""
        assert self.stack is not None
        seat = self._seat()
        self.stack.replicas(self.service)[seat]._release = lambda generation: None  # type: ignore[method-assign]

        async def end(stack: ReplicatedStack) -> None:
            async with self.turn:
                await stack.kill(seat)
                await self._other_leads(stack, seat, at)
                await stack.start(seat)

        self.restarts.add(asyncio.get_running_loop().create_task(end(self.stack)))
        await asyncio.Event().wait()

    async def _paused(self, at: tuple[str, str]) -> None:
        """It neither renews its lease nor looks what is open, until the other has led for a while."""
        assert self.stack is not None
        seat = self._seat()
        leadership = self.stack.replicas(self.service)[seat]
        renew, leadership._renew = leadership._renew, lambda generation, lost: None  # type: ignore[method-assign]
        resumption = self.stack.slots[seat].transport.app.state.watchers["workflow-resumption"]
        resumption.step = asyncio.Event().wait
        try:
            await self._other_leads(self.stack, seat, at)
            await asyncio.sleep(2 * LEASE_S)
        finally:  # another of its workflows may have been refused before, and this one is cancelled
            leadership._renew = renew  # type: ignore[method-assign]
            del resumption.step

    async def _other_leads(self, stack: ReplicatedStack, seat: str, at: tuple[str, str]) -> None:
        async def leads() -> bool:
            replicas = stack.replicas(self.service)
            return any(each.generation is not None for name, each in replicas.items() if name != seat)

        self.took_over[at] = await stack.until(leads, "the other leads", every_s=0.05)


async def one_leads(stack: ReplicatedStack, service: str) -> None:
    """Both are up, and who led before has found out."""

    async def alone() -> bool:
        return sorted(each.generation is None for each in stack.replicas(service).values()) == [False, True]

    await stack.until(alone, "one of two leads", every_s=0.05)


def assert_all_followed(mishaps: LeaderMishaps, expected: Mapping[tuple[str, str], str]) -> None:
    assert mishaps.took_over.keys() == expected.keys()
    assert max(mishaps.took_over.values()) <= TAKEN_OVER_S, mishaps.took_over
    paused = [at for at, kind in expected.items() if kind.startswith("paused")]
    assert sorted(mishaps.woken) == sorted(paused)
    assert mishaps.written == sorted(mishaps.written), "an older leader wrote after a newer one"
    assert len(set(mishaps.written)) > 1, "more than one of them wrote something"
    for restart in mishaps.restarts:
        restart.result()


async def drains_lead(folder: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[tuple[str, str], str]) -> None:
    mishaps = LeaderMishaps("link", dict(expected))
    monkeypatch.setattr(link_controllers, "WORKFLOWS", mishaps.wrapped(DRAINS))
    monkeypatch.setattr(Database, "_commit", mishaps.noting(Database._commit))
    async with ReplicatedNeighbours(folder) as stack:
        await serving(stack)
        mishaps.stack = stack
        for name in CHIPS:
            await drain(stack, name)

            async def over() -> bool:
                return all(each["done"] for each in await list_all(stack.http["link"], "/v1/operations"))

            await stack.until(over, f"{name} has ended")
        await ended(stack, "link")
        await one_leads(stack, "link")
        assert_all_followed(mishaps, expected)
        await stack.check()
        assert {each["state"] for each in await list_all(stack.http["link"], "/v1/drains")} == {"Drained"}

        async def shown_by_both() -> bool:
            await as_the_drains_say(stack)  # asked by turns, and each shows what it read last
            return True

        await stack.until(shown_by_both, "both show what the drains say", within_s=60)
        await all_put_back(stack)


async def rooms_lead(folder: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[tuple[str, str], str]) -> None:
    mishaps = LeaderMishaps("resource", dict(expected))
    monkeypatch.setattr(rooms, "WORKFLOWS", mishaps.wrapped(rooms.WORKFLOWS))
    monkeypatch.setattr(Database, "_commit", mishaps.noting(Database._commit))
    async with ReplicatedNeighbours(folder) as stack:
        await scattered(stack)
        mishaps.stack = stack
        await begun(stack)
        await ended(stack, "resource")
        await one_leads(stack, "resource")
        assert_all_followed(mishaps, expected)
        assert await nothing_is_left(stack) == "Done"


DRAIN_STEPS = [(verb, step) for verb, workflow in DRAINS.items() for step in workflow.names]


async def test_new_leader_resumes_at_each_step_of_a_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("paused_before", "killed_after", "paused_after")
    await drains_lead(tmp_path, monkeypatch, {at: kinds[index % 3] for index, at in enumerate(DRAIN_STEPS)})


async def test_new_leader_resumes_at_each_step_of_a_defragmentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rooms_lead(tmp_path, monkeypatch, {at: KINDS[index % 4] for index, at in enumerate(ROOM_STEPS)})


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
async def test_new_leader_resumes_at_each_step(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("link", "resource"):
        (tmp_path / name).mkdir()
    await drains_lead(tmp_path / "link", monkeypatch, dict.fromkeys(DRAIN_STEPS, kind))
    await rooms_lead(tmp_path / "resource", monkeypatch, dict.fromkeys(ROOM_STEPS, kind))
