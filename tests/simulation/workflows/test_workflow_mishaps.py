"""Each step of each workflow over an instance meets each mishap; afterwards nothing is left over, whatever happened.

Which workflows and steps there are is read off the tables (`WORKFLOWS`). An instance for each step of a workflow is brought
to where that workflow begins, the workflow is set off over all of them at once, and each meets a mishap at its own step.
In the end every instance is settled or says what it waits for, and after they are deleted nobody holds anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from matrixcompute.operations.context import (
    MOVE,
    RELOCATE,
    REPAIR,
    RESTART,
    RESTORE,
    RESTORE_SLICES,
    START,
    STOP,
    SUSPEND,
    YIELD_CAPACITY,
)
from matrixcompute.workflows.definitions import WORKFLOWS
from services.compute import controllers as compute_controllers
from tests.simulation.workflows.workflow_mishaps import MISHAPS, Mishaps
from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(900)]

MANY_LOST = {"compute": {"lost_per_supernode": 16}}
"""An instance for each step of a repair loses its node, all at the same time."""

SETTLED = {"Active", "Stopped", "Suspended", "Pending", "Failed"}
ELSEWHERE = {RELOCATE: "its steps are those of a move but for the first; tests/stories/test_defragmentation.py"}


async def verb(stack: Stack, name: str, verb: str, **body: object) -> None:
    answer = await stack.http["compute"].post(f"/v1/instances/{name}:{verb}", json=body or None)
    assert answer.status_code == 202, answer.text


async def create(stack: Stack, name: str) -> None:
    await stack.apply(name, 1)


async def active(stack: Stack, name: str) -> None:
    await stack.apply(name, 1)
    await stack.active(name)


async def pair(stack: Stack, name: str) -> None:
    await stack.apply(name, 2, placement={"policy": "pack", "level": "cabinet"})
    await stack.active(name)


async def stopped(stack: Stack, name: str) -> None:
    await active(stack, name)
    await verb(stack, name, "stop")

    async def off() -> bool:
        view = await stack.compute.find_instance(name)
        return view is not None and view.state == "Stopped"

    await stack.until(off, f"{name} is stopped")


async def humble(stack: Stack, name: str) -> None:
    """It is one of those whose place everybody else's leaves."""
    if await stack.compute.find_instance("filler") is None:
        await stack.apply("filler", 48 - len(WORKFLOWS[YIELD_CAPACITY].steps), priority=9)
        await stack.active("filler", within_s=1800)
    await active(stack, name)


async def nothing(stack: Stack, name: str) -> None:
    """It is not there yet."""


async def scale(stack: Stack, name: str) -> None:
    await stack.apply(name, 1, network={"ub": {"floorGbpsPerNpu": 20}})


async def spread(stack: Stack, name: str) -> None:
    await verb(stack, name, "move", policy="spread", level="cabinet")


async def lose(stack: Stack, name: str) -> None:
    view = await stack.compute.find_instance(name)
    assert view is not None
    stack.impair(name, "node-down", view.members[0].node)


async def smaller(stack: Stack, name: str) -> None:
    """Of two members it has lost one, for which there was no other node."""
    if await stack.compute.find_instance("filler") is None:
        await stack.apply("filler", 48 - 2 * len(WORKFLOWS[RESTORE].steps))
        await stack.active("filler", within_s=1800)
    await stack.apply(name, 2, minNodes=1)
    view = await stack.active(name)
    stack.impair(name, "node-down", view.members[0].node)

    async def degraded() -> bool:
        view = await stack.compute.find_instance(name)
        return view is not None and view.state == "Active" and len(view.members) == 1

    await stack.until(degraded, f"{name} continues with one member", within_s=1800)


async def room(stack: Stack, name: str) -> None:
    """For everybody, whoever of them has taken nodes already."""
    stack.repair(name)
    await stack.apply("filler", 48 - 3 * len(WORKFLOWS[RESTORE].steps))


async def refused(stack: Stack, name: str) -> None:
    """It was asked for what no link has, and stays as it was."""
    await active(stack, name)
    await stack.apply(name, 1, network={"rdma": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 10_000}})

    async def shown() -> bool:
        view = await stack.compute.find_instance(name)
        assert view is not None
        return view.state == "Active" and any(each.reason == "InvalidField" for each in view.conditions)

    await stack.until(shown, f"the change of {name} is refused", within_s=600)


async def withdraw(stack: Stack, name: str) -> None:
    answer = await stack.http["link"].delete(f"/v1/slices/{name}-rdma")
    assert answer.is_success, answer.text


async def urgent(stack: Stack, name: str) -> None:
    await stack.apply(f"urgent-{name}", 1, priority=5, preemption="LowerPriority")


async def suspend(stack: Stack, name: str) -> None:
    await stack.apply(name, 1, suspend=True)


async def delete(stack: Stack, name: str) -> None:
    await stack.compute.delete_instance(name)


Action = Callable[[Stack, str], Awaitable[None]]
BEGINNINGS: dict[str, tuple[Action, Action]] = {
    "create-instance": (nothing, create),
    "scale-instance": (active, scale),
    STOP: (active, lambda stack, name: verb(stack, name, "stop")),
    START: (stopped, lambda stack, name: verb(stack, name, "start")),
    RESTART: (active, lambda stack, name: verb(stack, name, "restart")),
    MOVE: (pair, spread),
    REPAIR: (active, lose),
    RESTORE: (smaller, room),
    RESTORE_SLICES: (refused, withdraw),
    "delete-instance": (active, delete),
    YIELD_CAPACITY: (humble, urgent),
    SUSPEND: (active, suspend),
}
"""Where each workflow begins, and what sets it off."""


@pytest.fixture
def mishaps(monkeypatch: pytest.MonkeyPatch) -> Mishaps:
    found = Mishaps("compute", delete)
    monkeypatch.setattr(compute_controllers, "WORKFLOWS", found.wrapped(WORKFLOWS))
    return found


def test_every_workflow_has_a_test_setup() -> None:
    assert BEGINNINGS.keys() == WORKFLOWS.keys() - ELSEWHERE.keys(), "say where it begins, or where else it is tested"


async def ended(stack: Stack) -> None:
    """No workflow is under way, and no instance in a state that passes."""

    async def none() -> bool:
        operations = (await stack.get("compute", "/v1/operations?pageSize=1000")).json()["items"]
        return (
            all(each["done"] for each in operations)
            and {each.state for each in await stack.compute.instances()} <= SETTLED
        )

    await stack.until(none, "every workflow has ended", within_s=7200)


async def everything_goes(stack: Stack) -> None:
    """Faults are cleared, every instance is deleted, and nobody holds anything."""
    assert stack.fleet is not None
    for fault in list(stack.fleet.faults):
        stack.repair(fault)
    for instance in await stack.compute.instances():
        await stack.compute.delete_instance(instance.name)
    for instance in await stack.compute.instances():
        await stack.gone(instance.name)
    await stack.nothing_left()


async def met(stack: Stack, mishaps: Mishaps, verb: str, kinds: Mapping[str, str]) -> None:
    """One workflow over an instance for each of its steps, each of which meets its mishap; then everything goes."""
    begin, set_off = BEGINNINGS[verb]
    names = {step: f"{verb.split('-')[0]}-{place}" for place, step in enumerate(kinds)}
    await asyncio.gather(*(begin(stack, name) for name in names.values()))
    mishaps.coming = {(name, verb, step): kinds[step] for step, name in names.items()}
    await asyncio.gather(*(set_off(stack, name) for name in names.values()))

    async def all_happened() -> bool:
        return not mishaps.coming

    await stack.until(all_happened, f"each step of {verb} met its mishap", within_s=3600)
    await ended(stack)
    await stack.check()
    assert not (await stack.get("compute", "/v1/stuck")).json()["items"]
    await everything_goes(stack)


async def each_step(stack: Stack, mishaps: Mishaps, workflow: str, kinds: Callable[[int], str]) -> None:
    """`kinds`: which mishap a step meets, by its place among the steps of every workflow."""
    mishaps.stack = stack
    steps = WORKFLOWS[workflow].names
    before = sum(len(WORKFLOWS[name].steps) for name in list(BEGINNINGS)[: list(BEGINNINGS).index(workflow)])
    await met(stack, mishaps, workflow, {step: kinds(before + at) for at, step in enumerate(steps)})
    assert len(mishaps.happened) == len(steps)


QUICK = ("create-instance", REPAIR, "delete-instance")


@pytest.mark.parametrize(
    "workflow", [pytest.param(each, marks=() if each in QUICK else pytest.mark.soak) for each in BEGINNINGS]
)
async def test_each_step_survives_a_sampled_failure(workflow: str, mishaps: Mishaps, tmp_path) -> None:
    """Each step one of them, in turn; the other workflows, and all of them at each step, are `make soak`'s."""
    every = list(MISHAPS)
    async with Stack(tmp_path, settings=MANY_LOST) as stack:
        await each_step(stack, mishaps, workflow, lambda place: every[place % len(every)])


@pytest.mark.soak
@pytest.mark.parametrize("workflow", BEGINNINGS)
@pytest.mark.parametrize("kind", MISHAPS)
async def test_each_step_survives_every_failure(kind: str, workflow: str, mishaps: Mishaps, tmp_path) -> None:
    async with Stack(tmp_path, settings=MANY_LOST) as stack:
        await each_step(stack, mishaps, workflow, lambda _: kind)
