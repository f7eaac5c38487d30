"""One instance over several supernodes: one request, a UB slice in each, RDMA and VPC over all; healed and deleted."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]

WIDE = {"placement": {"policy": "spread", "level": "supernode"}}


async def with_supernodes(stack: Stack, count: int) -> None:
    for index in range(1, count):
        assert (await stack.http["resource"].put(f"/v1/supernodes/sn{index}", json={})).is_success
        assert (await stack.http["agents"].put(f"/v1/supernodes/sn{index}")).is_success

    async def enrolled() -> bool:
        nodes = await stack.resource.nodes()
        return sum(node.state == "Available" for node in nodes) == 48 * count

    await stack.until(enrolled, "every node is available", within_s=600)


async def slice_members(stack: Stack) -> dict[str, set[str]]:
    return {each.name: {node.split("-")[0] for node in each.members} for each in await stack.link.slices()}


async def test_instance_over_two_supernodes_is_repaired_and_deleted(tmp_path):
    async with Stack(tmp_path) as stack:
        await with_supernodes(stack, 2)
        await stack.apply("wide", 52, **WIDE)
        before = await stack.active("wide", 52)
        homes = [member.node.split("-")[0] for member in before.members]
        assert set(homes) == {"sn0", "sn1"}
        other = "1" if homes[0] == "sn0" else "0"
        assert await slice_members(stack) == {
            "wide-ub": {homes[0]},
            f"wide-ub{other}": {f"sn{other}"},
            "wide-rdma": {"sn0", "sn1"},
            "wide-vpc": {"sn0", "sn1"},
        }
        await stack.check()

        lost = before.members[3].node
        stack.impair("f", "node-down", lost)

        async def healed() -> bool:
            view = await stack.compute.find_instance("wide")
            return view.repairs == 1 and view.state == "Active"

        await stack.until(healed, "a lost member is replaced", within_s=1200)
        after = await stack.active("wide", 52)
        assert lost not in {member.node for member in after.members}
        await stack.check()

        await stack.apply("wide", 6)  # packed again: what lay in the other supernode moves
        packed = await stack.active("wide", 6)
        home = packed.members[0].node.split("-")[0]
        assert await slice_members(stack) == {f"wide-{plane}": {home} for plane in ("ub", "rdma", "vpc")}
        await stack.check()
        await stack.compute.delete_instance("wide")
        await stack.gone("wide")
        assert not await stack.link.slices()
        assert not await stack.resource.allocations()


async def test_oversized_supernode_placement_is_refused_with_advice(tmp_path):
    async with Stack(tmp_path) as stack:
        await with_supernodes(stack, 2)
        await stack.apply("large", 52)

        async def refused() -> bool:
            return (await stack.compute.find_instance("large")).state == "Failed"

        await stack.until(refused, "it is refused for good", within_s=120)
        view = await stack.compute.find_instance("large")
        why = next(each for each in view.conditions if each.type == "Progressing")
        assert why.reason == "ExceedsDomain"
        assert "a supernode has 48 nodes, but 52 are required in one; allow several" in why.message
        asked = view.operation
        await asyncio.sleep(600)
        assert (await stack.compute.find_instance("large")).operation == asked
        await stack.apply("large", 52, **WIDE)
        await stack.active("large", 52)
        await stack.check()


async def test_infeasible_floor_between_supernodes_is_refused(tmp_path):
    async with Stack(tmp_path) as stack:
        await with_supernodes(stack, 2)
        network = {"rdma": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 10_000}}
        await stack.apply("greedy", 52, network=network, **WIDE)

        async def refused() -> bool:
            view = await stack.compute.find_instance("greedy")
            return view.state == "Failed" and not await stack.resource.allocations()

        await stack.until(refused, "it is refused, and everything is given back", within_s=1200)
        scheduled = next(c for c in (await stack.compute.find_instance("greedy")).conditions if c.type == "Scheduled")
        assert (scheduled.status, scheduled.reason) == ("False", "InvalidField")
        assert not await stack.link.slices()


@pytest.mark.parametrize(
    ("supernodes", "nodes"), [(3, 90), pytest.param(10, 400, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
async def test_lost_supernode_leaves_the_rest_serving(tmp_path, supernodes, nodes):
    """So many at once are likelier a cut network than dead hardware: nothing is torn down, and it is said why."""
    async with Stack(tmp_path) as stack:
        await with_supernodes(stack, supernodes)
        await stack.apply("wide", nodes, spares=supernodes, **WIDE)
        before = await stack.active("wide", nodes)
        homes = Counter(member.node.split("-")[0] for member in before.members if member.role == "member")
        assert set(homes.values()) == {nodes // supernodes}
        spares = Counter(member.node.split("-")[0] for member in before.members if member.role == "spare")
        assert spares == dict.fromkeys(homes, 1), "each supernode has a spare of its own"

        lost = [f"sn1-c{number // 4:02d}-n{number % 4}" for number in range(48)]
        for node in lost:
            stack.impair(node, "node-down", node)

        async def stopped() -> bool:
            view = await stack.compute.find_instance("wide")
            degraded = next(each for each in view.conditions if each.type == "Degraded")
            return degraded.reason == "SafetyStop" and "of sn1 are silent or quarantined" in degraded.message

        await stack.until(stopped, "it says why nothing is replaced", within_s=600)
        during = await stack.compute.find_instance("wide")
        assert (during.state, during.ready_nodes, during.repairs) == ("Active", nodes - homes["sn1"], 0)
        for node in lost:
            stack.repair(node)
        after = await stack.active("wide", nodes)
        assert [(m.node, m.rank) for m in after.members] == [(m.node, m.rank) for m in before.members]
        await stack.check()
        await stack.compute.delete_instance("wide")
        await stack.gone("wide")
        await stack.nothing_left()


async def test_lost_member_is_replaced_in_its_own_supernode(tmp_path):
    async with Stack(tmp_path) as stack:
        await with_supernodes(stack, 2)
        await stack.apply("wide", 60, spares=2, **WIDE)
        members = (await stack.active("wide", 60)).members
        await stack.check()
        for turn in range(3):  # its spare, the spare it got in turn, a free node: never the other's
            lost = next(m for m in members if m.role == "member" and m.node.startswith("sn1-"))
            stack.impair(f"f{turn}", "node-down", lost.node)

            async def healed(turn: int = turn) -> bool:
                view = await stack.compute.find_instance("wide")
                return view.repairs == turn + 1 and view.state == "Active"

            await stack.until(healed, "replaced", within_s=1200)
            members = (await stack.active("wide", 60)).members
            successor = next(m for m in members if m.rank == lost.rank and m.role == "member")
            assert successor.node.startswith("sn1-")
            assert successor.node != lost.node
        assert sum(m.role == "member" and m.node.startswith("sn1-") for m in members) == 30
