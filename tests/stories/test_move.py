"""An instance moves to another placement while it serves: what was there stays until the new is ready, or stays at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcompute.contract import InstanceRequest
from tests.stack import Stack

pytestmark = pytest.mark.looptime

SPREAD = {"policy": "spread"}
ONE_CABINET = {"policy": "pack", "required": True}


def cabinets(view) -> set[str]:
    return {member.cabinet for member in view.members if member.role == "member"}


def reported(view, type: str):
    return next(c for c in view.conditions if c.type == type)


async def reasons(stack: Stack) -> list[str]:
    return [event["reason"] for event in (await stack.get("compute", "/v1/events")).json()["items"]]


async def successors_come(stack: Stack) -> None:
    async def begun() -> bool:
        allocation = await stack.resource.find_allocation("one")
        return any(member.role == "successor" for member in allocation.members)

    await stack.until(begun, "successors are being deployed", within_s=60, every_s=0.2)


async def test_move_serves_until_the_cutover(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        before = await stack.active("one", 4)
        assert len(cabinets(before)) == 1
        request = InstanceRequest.model_validate({"nodes": 4, "spares": 1, "placement": SPREAD})
        plan = await stack.compute.ensure_instance("one", request, validate_only=True)
        assert len(cabinets(plan)) == 4
        assert (await stack.compute.find_instance("one")).generation == before.generation, "a plan changes nothing"

        await stack.apply("one", 4, spares=1, placement=SPREAD)
        looks = 0
        while (view := await stack.compute.find_instance("one")).state == "Updating":
            looks += 1
            assert looks < 360, "it has moved within an hour"
            assert reported(view, "NodesReady").status == "True" or view.generation == view.observed_generation
            nodes = await stack.resource.nodes()
            working = [n for n in nodes if n.allocation == "one" and n.role == "member" and n.state == "Active"]
            assert len(working) == 4, "nobody leaves before somebody is there"
            await asyncio.sleep(10)
        assert looks > 3, "it was looked at while it moved"
        await stack.check()
        after = await stack.active("one", 4)
        assert {(m.node, m.rank) for m in after.members if m.role == "member"} == {
            (m.node, m.rank) for m in plan.members if m.role == "member"
        }
        assert after.placement.policy == "spread"
        slices = await stack.link.slices()
        assert all(set(each.members) == {m.node for m in after.members if m.role == "member"} for each in slices)
        assert {"Moving", "Moved"} <= set(await reasons(stack))
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_refused_move_waits_with_a_reason(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("full", 36)
        await stack.active("full", 36)
        await stack.apply("one", 4, placement=SPREAD)
        apart = await stack.active("one", 4)
        await stack.apply("other", 6, placement=SPREAD)
        await stack.active("other", 6)
        await stack.apply("one", 4, placement=ONE_CABINET)

        async def refused() -> bool:
            view = await stack.compute.find_instance("one")
            return reported(view, "Progressing").reason == "InsufficientCapacity"

        await stack.until(refused, "it is informed that there is no such place")
        view = await stack.compute.find_instance("one")
        assert "no single cabinet has 4 free nodes" in reported(view, "Progressing").message
        assert (view.state, reported(view, "Ready").status) == ("Active", "True")
        assert [m.node for m in view.members] == [m.node for m in apart.members]
        assert view.observed_generation < view.generation
        await stack.check()
        await stack.compute.delete_instance("full")
        await stack.gone("full")
        assert len(cabinets(await stack.active("one", 4))) == 1
        await stack.check()


@pytest.mark.parametrize("who", ["a successor", "one that moves", "one that stays"])
async def test_move_survives_a_lost_node(tmp_path, who):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        await stack.active("one", 4)
        await stack.apply("one", 4, spares=1, placement=SPREAD)

        await successors_come(stack)
        allocation = await stack.resource.find_allocation("one")
        coming = {m.rank for m in allocation.members if m.role == "successor"}
        role = "successor" if who == "a successor" else "member"
        lost = next(m for m in allocation.members if m.role == role and (m.rank in coming) == (who != "one that stays"))
        stack.impair("f", "node-down", lost.node)
        view = await stack.active("one", 4)
        assert view.placement.policy == "spread"
        assert lost.node not in {m.node for m in view.members}
        assert len(cabinets(view)) >= 3
        await stack.check()
        stack.repair("f")
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_reverted_spec_rolls_the_move_back(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        before = await stack.active("one", 4)
        await stack.apply("one", 4, placement=SPREAD)
        await successors_come(stack)
        await stack.apply("one", 6)
        after = await stack.active("one", 6)
        assert after.placement.policy == "pack"
        assert {m.cabinet for m in before.members} <= cabinets(after)
        await stack.check()
        assert "Moved" not in await reasons(stack), "the move was rolled back"
        answer = await stack.http["compute"].post(
            "/v1/instances/one:move", json=SPREAD, params={"validateOnly": "true"}
        )
        assert answer.status_code == 202
        assert len({m["cabinet"] for m in answer.json()["members"]}) == 6
        await stack.http["compute"].post("/v1/instances/one:move", json=SPREAD)
        assert len(cabinets(await stack.active("one", 6))) == 6


async def at_step(stack: Stack, step: str) -> str:
    """The operation on instance `one`, once it is at that step."""

    async def there() -> bool:
        return (await operation(stack))["step"] == step

    await stack.until(there, f"the move is at {step}", within_s=300, every_s=0.5)
    return (await operation(stack))["name"]


async def operation(stack: Stack) -> dict[str, Any]:
    view = await stack.compute.find_instance("one")
    assert view.operation is not None
    return (await stack.get("compute", f"/v1/operations/{view.operation}")).json()


@pytest.mark.parametrize("role", ["member", "successor"])
async def test_move_survives_a_node_lost_while_programming_routes(tmp_path, role):
    """A node that is lost programs no routes, so that nobody may wait for them."""
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        await stack.active("one", 4)
        await stack.apply("one", 4, spares=1, placement=SPREAD)
        await at_step(stack, "await_routes")
        allocation = await stack.resource.find_allocation("one")
        lost = next(member.node for member in allocation.members if member.role == role)
        stack.impair("f", "node-down", lost)
        view = await stack.active("one", 4, within_s=1800)
        assert view.placement.policy == "spread"
        assert lost not in {member.node for member in view.members}
        await stack.check()


async def test_growth_after_a_move_takes_spares_in_place(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=1)
        before = await stack.active("one", 2)
        leaves = before.members[0].node
        assert (await stack.http["resource"].post(f"/v1/nodes/{leaves}:service", json={})).is_success

        async def left() -> bool:
            return (await stack.get("resource", f"/v1/nodes/{leaves}")).json()["state"] == "Servicing"

        await stack.until(left, "a member has moved out of a node", within_s=900)
        moved = await stack.active("one", 2)
        assert (await operation(stack))["verb"] == "move-instance"
        spare = next(member.node for member in moved.members if member.role == "spare")
        await stack.apply("one", 3, spares=1)
        assert (await operation(stack))["verb"] == "scale-instance"
        grown = await stack.active("one", 3)
        assert spare in {member.node for member in grown.members if member.role == "member"}
        await stack.check()
