"""Two models on one instance: each has nodes of its own, also while the instance moves, loses a node or is scaled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import put
from tests.stories.repairs.serving import nothing_lost, serving_under_load, statistics

pytestmark = pytest.mark.looptime

SPREAD = {"policy": "spread"}
SIZES = {"instance": "one", "model": "qwen3-235b", "prefillNpus": 8, "decodeNpus": 8}


async def views(stack: Stack) -> dict[str, dict[str, Any]]:
    """Both, and no node in both."""
    found = {each["name"]: each for each in (await stack.get("infer", "/v1/deployments")).json()["items"]}
    played = [node for each in found.values() for node in each["roles"]]
    assert len(played) == len(set(played)), found
    return found


async def both_serve(stack: Stack, nodes: int) -> None:
    """The one with sizes on its two nodes, the other one on the rest of so many."""

    async def serve() -> bool:
        there = await stack.compute.find_instance("one")
        members = {each.node for each in there.members if each.role == "member"}
        found = await views(stack)
        counts = {name: len(each["roles"]) for name, each in found.items() if each["state"] == "Serving"}
        played = {node for each in found.values() for node in each["roles"]}
        return counts == {"one": nodes - 2, "two": 2} and played <= members

    await stack.until(serve, "both serve", within_s=1800, every_s=2)


async def begun(stack: Stack, nodes: int) -> None:
    await stack.apply("one", nodes, spares=1)
    await stack.active("one", nodes)
    await serving_under_load(stack, "one")
    for part, body in (("", SIZES), ("/load", {"requestsPerSecond": 3.0, "seed": 4, "inputTokensMax": 4096})):
        assert (await stack.http["infer"].put(f"/v1/deployments/two{part}", json=body)).status_code == 200
    await both_serve(stack, nodes)


async def test_deployments_move_with_their_instance(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await begun(stack, 5)
        before = await views(stack)
        await stack.apply("one", 5, spares=1, placement=SPREAD)
        while (await stack.compute.find_instance("one")).state != "Active" or not moved(await views(stack), before):
            found = await views(stack)
            assert {each["state"] for each in found.values()} <= {"Serving", "Degraded"}, found
            await asyncio.sleep(5)
        await stack.active("one", 5)
        await both_serve(stack, 5)
        for name in ("one", "two"):
            nothing_lost(await statistics(stack, name))
        await stack.check()


def moved(found: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]) -> bool:
    return all(set(found[name]["roles"]) != set(before[name]["roles"]) for name in before)


async def test_deployment_with_a_lost_node_gets_the_spare(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await begun(stack, 5)
        before = await views(stack)
        lost = min(before["one"]["roles"])
        stack.impair("f", "node-down", lost)

        async def replaced() -> bool:
            found = await views(stack)
            assert found["two"]["roles"] == before["two"]["roles"]
            return lost not in found["one"]["roles"] and len(found["one"]["roles"]) == 3

        await stack.until(replaced, "the spare has its place", within_s=1800, every_s=2)
        after = await views(stack)
        await stack.restart("infer")
        await both_serve(stack, 5)
        assert {name: each["roles"] for name, each in (await views(stack)).items()} == {
            name: each["roles"] for name, each in after.items()
        }
        await stack.http["infer"].delete("/v1/deployments/two")

        async def all_of_it() -> bool:
            return len((await views(stack))["one"]["roles"]) == 5

        await stack.until(all_of_it, "what is left has all nodes", within_s=600)
        await stack.check()


async def test_maintenance_replaces_a_node_of_its_deployment(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await begun(stack, 5)
        target = min((await views(stack))["two"]["roles"])
        await put(stack, "fan", target={"node": target}, serviceS=60)

        async def gone() -> bool:
            found = await views(stack)
            assert {each["state"] for each in found.values()} <= {"Serving", "Degraded"}, found
            return target not in found["two"]["roles"] and len(found["two"]["roles"]) == 2

        await stack.until(gone, "it has another one", within_s=1800, every_s=2)
        await both_serve(stack, 5)
        nothing_lost(await statistics(stack, "two"))
        await stack.check()
