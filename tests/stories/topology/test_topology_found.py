"""Cables and switches fail on the emulated hardware; MatrixResource finds out from its agents, once, and keeps it."""

from __future__ import annotations

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def reported(stack: Stack) -> list[list[str]]:
    items = (await stack.resource.get("/v1/topology-versions"))["items"]
    return [[f"{change['kind']} {change['part']}" for change in each["changes"]] for each in items]


async def test_failed_switch_and_moved_cable_are_detected(tmp_path):
    async with Stack(tmp_path) as stack:
        nodes = [node.name for node in await stack.resource.nodes()]
        for node in nodes:
            stack.impair(f"k11-{node}", "link-down", node, port="ub-p3-k11")

        async def found() -> bool:
            return len(await reported(stack)) == 2

        await stack.until(found, "the switch is found", within_s=300)
        await stack.restart("resource")
        for node in nodes:
            stack.repair(f"k11-{node}")
        stack.impair("moved", "cable-moved", nodes[5], port="ub-p0-k01", peer="sn0-l2p0-k02")

        async def repaired() -> bool:
            return len(await reported(stack)) == 3

        await stack.until(repaired, "it is seen repaired", within_s=300)
        assert await reported(stack) == [
            ["SupernodeAdded sn0"],
            ["SwitchFailed sn0-l2p3-k11"],
            ["SwitchRepaired sn0-l2p3-k11", f"CableMoved {nodes[5]}.ub-p0-k01"],
        ]
