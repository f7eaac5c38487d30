"""One instance over several supernodes: one request, a UB slice in each, RDMA and VPC over all; healed and deleted."""

from __future__ import annotations

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


async def test_an_instance_over_two_supernodes_is_one_and_is_healed_and_deleted(tmp_path):
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


async def test_a_floor_that_no_fabric_between_supernodes_keeps_is_refused_and_leaves_nothing(tmp_path):
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
