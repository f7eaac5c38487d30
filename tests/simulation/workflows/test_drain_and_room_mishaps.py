"""Each step of MatrixLink's and MatrixResource's workflows meets each mishap, and an upgrade; afterwards nothing is left
over: what is out of service is what the drains say, and every member lies on one node that is nobody's besides.

Which workflows and steps there are is read off the tables, as for those of MatrixCompute (`test_workflow_mishaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

from matrixcommon.api.client import list_all
from matrixcommon.workflows.workflow import Workflow
from matrixlink.maintenance.drain_workflow import DRAIN
from matrixlink.maintenance.drain_workflow import WORKFLOWS as DRAINS
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import DefragmentationRequest
from matrixresource.defragmentation import workflows as rooms
from matrixresource.store.tables import NodeRow
from services.link import controllers as link_controllers
from tests.matrixlink.test_drains import uses_port
from tests.simulation.workflows.test_workflow_upgrades import RELEASES, Halt
from tests.simulation.workflows.workflow_mishaps import ENDING, MISHAPS, Mishaps
from tests.small_stack import SmallStack
from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(900)]

STEPS = DRAIN.names
CHIPS = {f"d{at}": f"sn0-l2p{at}-k11" for at in range(len(STEPS))}
"""A drain for each step, of a chip of its own."""
ROOMS = rooms.WORKFLOWS
ROOM_STEPS = [(verb, step) for verb, workflow in ROOMS.items() for step in workflow.names]
OVER = {"Done", "Cancelled", "Failed", "Stale"}


async def ended(stack: Stack, service: str) -> None:
    async def none() -> bool:
        operations = await list_all(stack.http[service], "/v1/operations")
        return bool(operations) and all(each["done"] for each in operations)

    await stack.until(none, "every workflow has ended", within_s=20_000)
    assert not (await stack.get(service, "/v1/stuck")).json()["items"]


# ---- drains ---------------------------------------------------------------------------------------------------------


async def drain(stack: Stack, name: str) -> None:
    async def asked() -> bool:
        answer = await stack.http["link"].put(f"/v1/drains/{name}", json={"elements": [CHIPS[name]]})
        return answer.is_success

    await stack.until(asked, f"{name} was asked for")


async def restore(stack: Stack, name: str) -> None:
    answer = await stack.http["link"].delete(f"/v1/drains/{name}")
    assert answer.status_code in (204, 404), answer.text


async def serving(stack: Stack) -> None:
    await stack.apply("one", 4)
    await stack.active("one", 4)


async def as_the_drains_say(stack: Stack) -> None:
    """What is out of service is what drains say, and nobody sends over it."""
    drains = await list_all(stack.http["link"], "/v1/drains")
    assert {each["state"] for each in drains} <= {"Drained", "Restored"}
    out = {element for each in drains if each["state"] == "Drained" for element in each["elements"]}
    links = await list_all(stack.http["link"], "/v1/links")
    drained = {link["name"] for link in links if link["drained"]}
    assert drained == {link["name"] for link in links if out.intersection(link["ends"])}
    assert stack.fleet is not None
    members = [member.node for member in (await stack.active("one", 4)).members]
    members_of = SimpleNamespace(agents={node: stack.fleet.agent("link", node) for node in members})
    for name, chip in CHIPS.items():
        users = uses_port(members_of, f"ub-{chip.split('-')[1][2:]}-k11", "one-ub")
        assert len(users) == (0 if chip in out else len(members)), (name, users)


async def all_put_back(stack: Stack) -> None:
    for name in CHIPS:
        await restore(stack, name)
    await stack.active("one", 4)
    await stack.compute.delete_instance("one")
    await stack.gone("one")
    await stack.nothing_left()
    assert not any(link["drained"] for link in await list_all(stack.http["link"], "/v1/links"))


async def drains_meet(stack: Stack, monkeypatch: pytest.MonkeyPatch, kinds: Callable[[int], str]) -> None:
    """A drain for each step, which meets its mishap there."""
    mishaps = Mishaps("link", restore, stack)
    await serving(stack)
    await stack.kill("link")
    monkeypatch.setattr(link_controllers, "WORKFLOWS", mishaps.wrapped(DRAINS))
    await stack.start("link")
    mishaps.coming = {(name, DRAIN.verb, STEPS[at]): kinds(at) for at, name in enumerate(CHIPS)}
    for name in CHIPS:
        await drain(stack, name)

    async def all_happened() -> bool:
        return not mishaps.coming

    await stack.until(all_happened, "each step met its mishap")
    await ended(stack, "link")
    await stack.check()
    await as_the_drains_say(stack)
    await all_put_back(stack)


async def test_each_drain_step_survives_a_sampled_failure(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SmallStack(tmp_path) as stack:
        await drains_meet(stack, monkeypatch, lambda at: ["refused", "crashed_after", "cancelled"][at])


@pytest.mark.soak
@pytest.mark.parametrize("kind", MISHAPS)
async def test_each_drain_step_survives_every_failure(kind: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SmallStack(tmp_path) as stack:
        await drains_meet(stack, monkeypatch, lambda _: kind)


@pytest.mark.parametrize("release", RELEASES)
async def test_running_drains_end_in_another_release(release: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    halt = Halt(DRAIN.verb, dict(zip(CHIPS, STEPS, strict=True)))
    async with SmallStack(tmp_path) as stack:
        await serving(stack)
        await stack.kill("link")
        monkeypatch.setattr(link_controllers, "WORKFLOWS", halt.wrapped(DRAINS))
        await stack.start("link")
        for name in CHIPS:
            await drain(stack, name)

        async def all_halted() -> bool:
            return halt.reached == CHIPS.keys()

        await stack.until(all_halted, "a drain stands at each step")
        await stack.kill("link")
        monkeypatch.setattr(link_controllers, "WORKFLOWS", {DRAIN.verb: RELEASES[release](DRAIN, 1)})
        await stack.start("link")
        await ended(stack, "link")
        assert {each["state"] for each in await list_all(stack.http["link"], "/v1/drains")} == {"Drained"}
        await as_the_drains_say(stack)
        await all_put_back(stack)


# ---- room -----------------------------------------------------------------------------------------------------------


async def scattered(stack: Stack) -> None:
    """All cabinets but two full; a and b in one of the last two, c and d in the other."""
    await stack.resource.reserve("full", AllocationRequest(nodes=len(await stack.resource.nodes()) - 8))
    for first, second, gap in (("a", "b", "x"), ("c", "d", "y")):
        for name, nodes in ((first, 1), (second, 1), (gap, 2)):
            await stack.resource.reserve(name, AllocationRequest(nodes=nodes))
    for name in "abcd":
        await stack.resource.bind(name)

    async def bound() -> bool:
        return all([(await stack.resource.find_allocation(name)).state == "Bound" for name in "abcd"])

    await stack.until(bound, "they serve")
    for gap in "xy":
        await stack.resource.release(gap)

    async def gone() -> bool:
        return len([node for node in await stack.resource.nodes() if node.state == "Available"]) == 4

    await stack.until(gone, "four nodes are free, two in each of two cabinets")


async def withdraw(stack: Stack, name: str) -> None:
    """A plan is cancelled, an allocation released."""
    if name == "p":
        await stack.http["resource"].post("/v1/defragmentations/p:cancel")
    else:
        await stack.resource.release(name)


async def release_of(stack: Stack, monkeypatch: pytest.MonkeyPatch, changed: Callable[[dict[str, Any]], Any]) -> None:
    """MatrixResource is started anew with other workflows."""
    await stack.kill("resource")
    monkeypatch.setattr(rooms, "WORKFLOWS", changed(ROOMS))
    await stack.start("resource")


async def begun(stack: Stack) -> None:
    await stack.resource.propose(DefragmentationRequest(name="p", nodes=4))
    await stack.resource.approve("p")


async def nothing_is_left(stack: Stack) -> str:
    """The plan is over, nothing is kept for it, and every member lies on one node; then everything goes."""
    await ended(stack, "resource")
    state: str = (await stack.get("resource", "/v1/defragmentations/p")).json()["state"]
    assert state in OVER
    database = stack.slots["resource"].database
    assert database is not None
    with database.sessions() as session:
        assert not list(session.scalars(select(NodeRow.name).where(NodeRow.reserved_for_plan.is_not(None))))
    for allocation in await stack.resource.allocations():
        roles = [member.role for member in allocation.members]
        assert roles == ["member"] * allocation.nodes, (allocation.name, roles)
        assert allocation.state in ("Reserved", "Bound"), allocation.name
    for allocation in await stack.resource.allocations():
        await stack.resource.release(allocation.name)

    async def released() -> bool:
        return await stack.resource.allocations() == []

    await stack.until(released, "everything was given back")
    await stack.nothing_left()
    return state


async def rooms_meet(stack: Stack, monkeypatch: pytest.MonkeyPatch, kinds: Mapping[tuple[str, str], str]) -> str:
    mishaps = Mishaps("resource", withdraw, stack)
    await scattered(stack)
    await release_of(stack, monkeypatch, mishaps.wrapped)
    mishaps.coming = {("", verb, step): kind for (verb, step), kind in kinds.items()}
    await begun(stack)

    async def all_happened() -> bool:
        return not mishaps.coming

    await stack.until(all_happened, "each step met its mishap", within_s=7200)
    return await nothing_is_left(stack)


GOES_ON = [kind for kind in MISHAPS if kind not in ENDING]


async def test_each_defragmentation_step_survives_a_sampled_failure(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {step: GOES_ON[at % len(GOES_ON)] for at, step in enumerate(ROOM_STEPS)}
    async with SmallStack(tmp_path) as stack:
        assert await rooms_meet(stack, monkeypatch, kinds) == "Done"


@pytest.mark.soak
@pytest.mark.parametrize("kind", GOES_ON)
async def test_each_defragmentation_step_survives_every_failure(
    kind: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SmallStack(tmp_path) as stack:
        assert await rooms_meet(stack, monkeypatch, dict.fromkeys(ROOM_STEPS, kind)) == "Done"


QUICK = {("make_room", "cancelled"), ("await_successor", "refused")}


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        pytest.param(step, kind, marks=() if (step[1], kind) in QUICK else pytest.mark.soak, id=f"{step[1]}-{kind}")
        for step in ROOM_STEPS
        for kind in ENDING
    ],
)
async def test_ended_defragmentation_leaves_nothing(
    step: tuple[str, str], kind: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SmallStack(tmp_path) as stack:
        await rooms_meet(stack, monkeypatch, {step: kind})


UPGRADES = [(verb, step, release) for verb, step in ROOM_STEPS for release in RELEASES]


@pytest.mark.parametrize(
    ("verb", "step", "release"),
    [
        pytest.param(*case, marks=() if case[1] == "await_successor" else pytest.mark.soak, id="-".join(case[1:]))
        for case in UPGRADES
    ],
)
async def test_running_defragmentation_ends_in_another_release(
    verb: str, step: str, release: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt = Halt(verb, {"": step})
    async with SmallStack(tmp_path) as stack:
        await scattered(stack)
        await release_of(stack, monkeypatch, halt.wrapped)
        await begun(stack)

        async def halted() -> bool:
            return bool(halt.reached)

        await stack.until(halted, f"it stands at {step}")

        def upgraded(known: dict[str, Workflow[Any]]) -> dict[str, Workflow[Any]]:
            return {**known, verb: RELEASES[release](known[verb], known[verb].names.index(step))}

        await release_of(stack, monkeypatch, upgraded)
        assert await nothing_is_left(stack) == "Done"
