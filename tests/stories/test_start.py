"""A stack that starts from nothing, and what the others, which go on from a copy of one, have in common with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def shown(stack: Stack) -> dict[str, Any]:
    """What its services know of the machine."""
    nodes = await stack.resource.nodes()
    inventory = await stack.resource.get(f"/v1/nodes/{nodes[7].name}/inventory")
    return {
        "nodes": [(node.name, node.state, node.agent, node.health, node.allocation) for node in nodes],
        "inventory": (inventory["found"], inventory["mismatches"]),
        "topology": await stack.resource.topology_version(),
        "links": [(link["name"], link["gbps"]) for link in await stack.link.links(node=nodes[7].name)],
        "allocations": await stack.resource.allocations(),
        "slices": await stack.link.slices(),
        "instances": await stack.compute.instances(),
    }


async def test_nodes_enroll_at_first_start_and_a_copy_has_the_same_inventory(tmp_path: Path):
    for name in ("nothing", "copy"):
        (tmp_path / name).mkdir()
    fresh = Stack(tmp_path / "nothing", from_nothing=True)
    for service in fresh.services:
        await fresh.start(service)
    assert {node.state for node in await fresh.resource.nodes()} == {"Enrolled"}
    seconds = await fresh.until(fresh._enrolled, "every node is available", within_s=600)
    assert seconds > 30, "each verifies and inspects itself first"
    found = await shown(fresh)
    await fresh.__aexit__()
    async with Stack(tmp_path / "copy") as copy:
        assert await shown(copy) == found
        assert copy.clock.now() > fresh.clock.now() - 600, "its time goes on from where the first one's ended"
        assert {copy.fleet.agent("resource", node.name).epoch for node in await copy.resource.nodes()} == {2}
