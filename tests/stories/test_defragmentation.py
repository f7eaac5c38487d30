"""A cabinet's worth of room is made out of scattered nodes: planned, approved, moved member by member while all serve."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.model.errors import InsufficientCapacity
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import DefragmentationRequest, DefragmentationView
from matrixresource.contract.plans import PlanRequest
from tests.stack import SERVICES, Stack

pytestmark = pytest.mark.looptime

CABINET = {"policy": "pack", "level": "cabinet", "required": True}
GANG = AllocationRequest.model_validate({"nodes": 4, "placement": CABINET})


async def scattered(stack: Stack) -> None:
    """Ten cabinets full; instance a and allocation b in one of the last two, instance c and allocation d in the other."""
    await allocation(stack, "full", 40)
    for instance, alone, gap in (("a", "b", "x"), ("c", "d", "y")):
        await stack.apply(instance, 1)
        await stack.active(instance, 1)
        await allocation(stack, alone, 1)
        await allocation(stack, gap, 2)
    await bound(stack, "b", "d")
    for gap in "xy":
        await stack.resource.release(gap)

    async def gone() -> bool:
        return len([node for node in await stack.resource.nodes() if node.state == "Available"]) == 4

    await stack.until(gone, "four nodes are free, two in each of two cabinets")


async def allocation(stack: Stack, name: str, nodes: int) -> None:
    """By nobody that MatrixCompute knows."""
    await stack.resource.reserve(name, AllocationRequest(nodes=nodes))


async def bound(stack: Stack, *names: str) -> None:
    for name in names:
        await stack.resource.bind(name)

    async def ready() -> bool:
        return all([(await stack.resource.find_allocation(name)).state == "Bound" for name in names])

    await stack.until(ready, "they serve")


async def planned(stack: Stack) -> DefragmentationView:
    with pytest.raises(InsufficientCapacity, match="no single cabinet has 4 free nodes"):
        await stack.resource.reserve("gang", GANG)
    plan = await stack.resource.propose(DefragmentationRequest(name="p", request=GANG))
    assert (plan.state, plan.npus, plan.block_before, plan.block_after) == ("Proposed", 16, 2, 4)
    assert {move.by for move in plan.moves} == {"MatrixCompute", "MatrixResource"}
    return plan


async def seen(stack: Stack) -> DefragmentationView:
    return DefragmentationView.model_validate((await stack.get("resource", "/v1/defragmentations/p")).json())


async def over(stack: Stack) -> DefragmentationView:
    async def ended() -> bool:
        return (await seen(stack)).state not in ("Approved", "Running")

    await stack.until(ended, "the defragmentation is over")
    return await seen(stack)


async def served(stack: Stack) -> bool:
    """Every member of whoever moves has somebody active in its place."""
    nodes = await stack.resource.nodes()
    return all(
        any(n.allocation == name and n.role == "member" and n.state == "Active" for n in nodes) for name in "abcd"
    )


async def fits(stack: Stack) -> bool:
    """Whether somebody could have but one node."""
    return (await stack.resource.plan(PlanRequest(nodes=1))).fits


async def test_defragmentation_makes_room_while_instances_serve(tmp_path):
    async with Stack(tmp_path) as stack:
        await scattered(stack)
        plan = await planned(stack)
        await stack.resource.approve("p")
        while (view := await seen(stack)).state in ("Approved", "Running"):
            assert await served(stack), "nobody leaves before somebody is there"
            assert not await fits(stack) or (await seen(stack)).state == "Done", "the room is nobody else's meanwhile"
            await asyncio.sleep(10)
        assert (view.state, view.moves_done, view.npus_moved) == ("Done", 2, 16)
        allocations = {each.name: each for each in await stack.resource.allocations()}
        for move in plan.moves:
            assert [member.node for member in allocations[move.allocation].members] == [move.to]
        instance = next(move for move in plan.moves if move.by == "MatrixCompute")
        await stack.active(instance.allocation, 1)
        slices = [each for each in await stack.link.slices() if each.instance == instance.allocation]
        assert [each.members for each in slices] == [[instance.to]] * 3
        gang = await stack.resource.reserve("gang", GANG)
        assert {member.node for member in gang.members} == set(plan.room)


async def test_defragmentation_resumes_after_a_kill(tmp_path):
    async with Stack(tmp_path) as stack:
        await scattered(stack)
        await planned(stack)
        await stack.resource.approve("p")
        for moves in (0, 1):

            async def coming(moves: int = moves) -> bool:
                nodes = await stack.resource.nodes()
                return (await seen(stack)).moves_done == moves and any(n.role == "successor" for n in nodes)

            await stack.until(coming, "a successor comes up", every_s=0.5)
            for who in SERVICES:
                await stack.kill(who)
                await asyncio.sleep(5)
                await stack.start(who)
        assert (await over(stack)).state == "Done"
        for name in "ac":
            await stack.active(name, 1)
        assert await served(stack)


@pytest.mark.soak
async def test_cancelled_defragmentation_stops_after_the_current_move(tmp_path):
    async with Stack(tmp_path) as stack:
        await scattered(stack)
        await planned(stack)
        await stack.resource.approve("p")

        async def coming() -> bool:
            return any(node.role == "successor" for node in await stack.resource.nodes())

        await stack.until(coming, "a successor comes up", every_s=0.5)
        await stack.resource.cancel("p")
        view = await over(stack)
        assert (view.state, view.moves_done) == ("Cancelled", 1)
        for name in "ac":
            await stack.active(name, 1)
        assert await served(stack)
        assert not any(node.role == "successor" for node in await stack.resource.nodes())
        await stack.resource.reserve("free-again", AllocationRequest(nodes=1))


@pytest.mark.soak
async def test_lost_successor_leaves_instances_serving(tmp_path):
    async with Stack(tmp_path) as stack:
        await scattered(stack)
        await planned(stack)
        await stack.resource.approve("p")
        lost: list[str] = []

        async def coming() -> bool:
            lost[:] = [node.name for node in await stack.resource.nodes() if node.role == "successor"]
            return bool(lost)

        await stack.until(coming, "a successor comes up", every_s=0.5)
        stack.impair("f", "node-down", lost[0])
        view = await over(stack)
        assert (view.state, view.moves_done) == ("Stale", 0), "there are no other nodes to go to"
        assert "AgentLost" in view.message
        for name in "ac":
            await stack.active(name, 1)
        assert await served(stack)
        assert not any(node.role == "successor" for node in await stack.resource.nodes())
