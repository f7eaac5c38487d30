"""A changed spec that cannot be had: what is there stays whole, and what no waiting helps is not tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def operations(stack: Stack, instance: str) -> list[dict[str, Any]]:
    found = (await stack.get("compute", "/v1/operations", params={"pageSize": 500})).json()["items"]
    return [each for each in found if each["target"] == instance]


def progressing(view: Any) -> Any:
    return next(each for each in view.conditions if each.type == "Progressing")


def waits_as(stack: Stack, state: str) -> Callable[[], Awaitable[bool]]:
    """Whether "one" is in that state, and its larger shape waits."""

    async def waiting() -> bool:
        view = await stack.compute.find_instance("one")
        return view.state == state and progressing(view).reason == "InsufficientCapacity"

    return waiting


async def crowded_out(stack: Stack) -> None:
    """Have "one", of 4 nodes, wait for 12, while "other" has those that it would need."""
    await stack.apply("one", 4)
    await stack.apply("other", 40)
    await stack.active("one", 4)
    await stack.active("other", 40)
    await stack.apply("one", 12)
    await stack.until(waits_as(stack, "Active"), "the larger shape waits for room", within_s=600)


async def test_withdrawn_slice_is_restored_while_a_change_waits(tmp_path):
    async with Stack(tmp_path) as stack:
        await crowded_out(stack)
        answer = await stack.http["link"].delete("/v1/slices/one-rdma")
        assert answer.is_success, answer.text

        async def whole() -> bool:
            view = await stack.compute.find_instance("one")
            slices = {each.plane.value: each.state for each in view.slices}
            return view.state == "Active" and slices == {"ub": "Active", "rdma": "Active", "vpc": "Active"}

        await stack.until(whole, "its RDMA slice is back", within_s=300)
        view = await stack.compute.find_instance("one")
        assert (view.nodes, view.ready_nodes) == (12, 4), "the larger shape is still asked for"
        assert view.generation != view.observed_generation
        await stack.compute.delete_instance("other")
        await stack.active("one", 12)
        await stack.check()


async def test_waiting_instance_is_stopped_and_started_in_its_present_shape(tmp_path):
    async with Stack(tmp_path) as stack:
        await crowded_out(stack)
        for verb, power, state in (("stop", "Off", "Stopped"), ("start", "On", "Active"), ("stop", "Off", "Stopped")):
            answer = await stack.http["compute"].post(f"/v1/instances/one:{verb}")
            assert answer.status_code == 202, answer.text
            await stack.until(waits_as(stack, state), f"it is {state}, and the larger shape waits on", within_s=1200)
            view = await stack.compute.find_instance("one")
            assert (view.power, view.nodes, len(view.members)) == (power, 12, 4)
            assert view.generation != view.observed_generation
        await stack.compute.delete_instance("other")

        async def grown() -> bool:
            view = await stack.compute.find_instance("one")
            return view.state == "Stopped" and view.generation == view.observed_generation

        await stack.until(grown, "it has grown, switched off", within_s=1200)
        assert (await stack.http["compute"].post("/v1/instances/one:start")).status_code == 202
        await stack.active("one", 12)
        await stack.check()


async def test_stopped_waiting_instance_replaces_lost_members_when_it_starts(tmp_path):
    async with Stack(tmp_path) as stack:
        await crowded_out(stack)
        assert (await stack.http["compute"].post("/v1/instances/one:stop")).status_code == 202
        await stack.until(waits_as(stack, "Stopped"), "it is switched off, and waits", within_s=1200)
        lost = (await stack.compute.find_instance("one")).members[1].node
        stack.impair("dark", "node-down", lost)

        async def degraded() -> bool:
            view = await stack.compute.find_instance("one")
            return any((each.type, each.reason) == ("Degraded", "NodeLost") for each in view.conditions)

        await stack.until(degraded, "the loss is seen", within_s=600)
        await stack.apply("other", 39)
        await stack.active("other", 39)
        stack.impair("also", "node-down", (await stack.compute.find_instance("other")).members[0].node)

        async def repaired() -> bool:
            view = await stack.compute.find_instance("other")
            return (view.repairs, view.state) == (1, "Active")

        await stack.until(repaired, "the other one is repaired meanwhile", within_s=1200)
        view = await stack.compute.find_instance("one")
        assert (view.state, view.repairs) == ("Stopped", 0)
        assert lost in {member.node for member in view.members}
        await stack.compute.delete_instance("other")
        assert (await stack.http["compute"].post("/v1/instances/one:start")).status_code == 202
        await stack.active("one", 12)
        assert lost not in {member.node for member in (await stack.compute.find_instance("one")).members}
        await stack.check()


async def test_permanently_refused_change_is_retried_only_on_request(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        floor = {"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 10_000}}
        await stack.apply("one", 2, network=floor)

        async def refused() -> bool:
            view = await stack.compute.find_instance("one")
            return view.state == "Active" and progressing(view).reason == "InvalidField"

        await stack.until(refused, "the floor is refused", within_s=600)
        before = await operations(stack, "one")
        await asyncio.sleep(1800)
        assert await operations(stack, "one") == before, "nobody tries it again"
        view = await stack.compute.find_instance("one")
        assert "`:retry` or another spec" in progressing(view).message
        await stack.http["compute"].post("/v1/instances/one:retry")

        async def tried() -> bool:
            return len(await operations(stack, "one")) == len(before) + 1

        await stack.until(tried, "it is tried once more", within_s=600)
        await stack.apply("one", 3)
        await stack.active("one", 3)
        await stack.check()


async def waits_for_room(stack: Stack, name: str) -> None:
    async def waiting() -> bool:
        view = await stack.compute.find_instance(name)
        return view.state == "Active" and progressing(view).reason == "InsufficientCapacity"

    await stack.until(waiting, "the larger shape waits for room", within_s=600)


async def test_restart_while_a_change_waits_keeps_the_present_shape(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await stack.apply("other", 40)
        await stack.active("one", 3)
        await stack.active("other", 40)
        await stack.apply("one", 12)
        await waits_for_room(stack, "one")
        assert (await stack.http["compute"].post("/v1/instances/one:restart")).status_code == 202

        async def restarted() -> bool:
            found = [each for each in await operations(stack, "one") if each["verb"] == "restart-instance"]
            return [each["state"] for each in found] == ["Done"]

        await stack.until(restarted, "it is restarted", within_s=1200)
        view = await stack.compute.find_instance("one")
        assert (view.generation, view.observed_generation) == (2, 1), "what was refused is not what it has"
        degraded = next(each for each in view.conditions if each.type == "Degraded")
        assert degraded.status == "False", degraded.message
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await stack.check()


async def test_waiting_growth_does_not_block_maintenance(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await stack.apply("other", 40)
        before = await stack.active("one", 3)
        await stack.active("other", 40)
        worked_on, drained = (member.node for member in before.members[:2])
        await stack.apply("one", 12)
        await waits_for_room(stack, "one")
        body = {"target": {"node": worked_on}, "serviceS": 60}
        assert (await stack.http["compute"].put("/v1/maintenances/fan", json=body)).is_success

        async def over() -> bool:
            return (await stack.get("compute", "/v1/maintenances/fan")).json()["state"] == "Completed"

        await stack.until(over, "the node is worked on", within_s=900)
        assert (await stack.http["resource"].post(f"/v1/nodes/{drained}:service", json={})).is_success

        async def left() -> bool:
            return (await stack.get("resource", f"/v1/nodes/{drained}")).json()["state"] == "Servicing"

        await stack.until(left, "the other is left too", within_s=900)
        view = await stack.compute.find_instance("one")
        assert (view.nodes, view.generation, view.observed_generation) == (12, 2, 1), "it is still asked for"
        assert drained not in {member.node for member in view.members}
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await stack.check()


@pytest.mark.parametrize("changed", [{"nodes": 4}, {"nodes": 49, "suspend": True}], ids=["smaller", "suspended"])
async def test_spec_changed_during_a_creation_that_can_never_succeed_is_tried(tmp_path, changed: dict[str, Any]):
    """A supernode has 48 nodes. The refusal is of the first spec, and nobody is there to `:retry` the second."""
    async with Stack(tmp_path) as stack:
        assert (await stack.apply("one", 49)).state == "Provisioning"
        await stack.apply("one", **changed)
        reached = "Suspended" if "suspend" in changed else "Active"

        async def there() -> bool:
            view = await stack.compute.find_instance("one")
            return view.state == reached and view.generation == view.observed_generation

        await stack.until(there, f"it is {reached}", within_s=900)
        first, *_ = await operations(stack, "one")
        assert first["state"] == "Failed"
        await stack.check()


async def test_a_cancelled_creation_is_followed_by_the_spec_that_changed_meanwhile(tmp_path):
    async with Stack(tmp_path) as stack:
        operation = (await stack.apply("one", 8)).operation
        await stack.apply("one", 4)
        answer = await stack.http["compute"].post(f"/v1/operations/{operation}:cancel")
        assert answer.status_code == 202, answer.text
        await stack.active("one", 4, within_s=900)
        await stack.check()
