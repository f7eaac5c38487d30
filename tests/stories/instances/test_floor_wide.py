"""The degraded shape of an instance over several supernodes: it continues where members are left, and spreads again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack import Stack
from tests.stories.instances.test_floor import condition, members, until, view
from tests.stories.instances.test_over_supernodes import WIDE, with_supernodes

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]


def by_supernode(nodes: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in sorted(nodes):
        found.setdefault(node.split("-")[0], []).append(node)
    return found


async def slices_follow(stack: Stack) -> None:
    """A UB slice in each supernode where it has members, of those; RDMA and VPC over all."""
    present = members(await view(stack))
    slices = [each for each in await stack.link.slices() if each.instance == "one"]
    ub = {tuple(sorted(each.members)) for each in slices if each.plane == "ub"}
    assert ub == {tuple(nodes) for nodes in by_supernode(present).values()}
    others = {each.plane: sorted(each.members) for each in slices if each.plane != "ub"}
    assert others == dict.fromkeys(("rdma", "vpc"), sorted(present))


async def wide_and_full(stack: Stack, nodes: int, **spec: object) -> list[str]:
    """`one` over two supernodes, beside `rest` on all other nodes; its members."""
    await with_supernodes(stack, 2)
    await stack.apply("one", nodes, **spec, **WIDE)
    await stack.active("one", nodes)
    await stack.apply("rest", 96 - nodes, **WIDE)
    await stack.active("rest", 96 - nodes)
    await slices_follow(stack)
    return members(await view(stack))


@pytest.mark.soak
async def test_degraded_supernode_is_restored(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        before = await wide_and_full(stack, 52, minNodes=51)
        lost = next(node for node in before if node.startswith("sn1-"))
        stack.impair("dark", "node-down", lost)
        shown = await until(stack, "Active", "MembersMissing")
        assert sorted(members(shown)) == sorted({*before} - {lost})
        assert condition(shown, "Ready")[0] == "True"
        await slices_follow(stack)
        await stack.check()
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert (shown["readyNodes"], shown["repairs"]) == (52, 1)
        assert sorted(members(shown)) == sorted(before), "it spreads as before, in the only node there is"
        await slices_follow(stack)
        await stack.check()


async def test_lost_supernode_leaves_an_instance_in_the_other(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        before = await wide_and_full(stack, 4, minNodes=2)
        lost = by_supernode(before)["sn1"]
        assert len(lost) == 2
        for node in lost:
            stack.impair(node, "node-down", node)
        shown = await until(stack, "Active", "MembersMissing")

        async def alone() -> bool:
            return by_supernode(members(await view(stack))).keys() == {"sn0"}

        await stack.until(alone, "it has members in sn0 alone", within_s=900)
        shown = await until(stack, "Active", "MembersMissing")
        assert shown["readyNodes"] == 2
        await slices_follow(stack)
        await stack.check()
        for node in lost:
            stack.repair(node)
        shown = await until(stack, "Active", "Whole")
        assert sorted(members(shown)) == sorted(before)
        await slices_follow(stack)
        await stack.compute.delete_instance("one")
        await stack.compute.delete_instance("rest")
        await stack.gone("one")
        await stack.gone("rest")
        await stack.nothing_left()
