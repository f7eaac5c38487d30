"""Stopped, started and restarted: nodes are switched off and kept, and come back as they were."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import Conflict
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def change(stack: Stack, name: str, verb: str, **params: str) -> None:
    answer = await stack.http["compute"].post(f"/v1/instances/{name}:{verb}", params=params)
    assert answer.status_code == 202, answer.text


async def reaches(stack: Stack, name: str, state: str, within_s: float = 1200) -> float:
    async def there() -> bool:
        view = await stack.compute.find_instance(name)
        return view is not None and view.state == state and view.generation == view.observed_generation

    return await stack.until(there, f"{name} is {state}", within_s=within_s)


def powers(stack: Stack, nodes: list[str]) -> set[str]:
    return {"Off" if stack.fleet.agent("resource", node).status == "Off" else "On" for node in nodes}


async def test_stopped_instance_restarts_on_its_nodes(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        before = await stack.active("one", 4)
        nodes = [member.node for member in before.members]
        await change(stack, "one", "stop")
        assert (await stack.compute.find_instance("one")).state == "Stopping"
        await reaches(stack, "one", "Stopped")
        stopped = await stack.compute.find_instance("one")
        assert (stopped.ready_nodes, stopped.power) == (0, "Off")
        assert [(m.node, m.rank) for m in stopped.members] == [(m.node, m.rank) for m in before.members]
        reasons = {each.type: (each.status, each.reason) for each in stopped.conditions}
        assert reasons["NodesReady"] == ("False", "SwitchedOff")
        assert reasons["Ready"] == ("False", "Stopped")
        for node in nodes:
            view = (await stack.get("resource", f"/v1/nodes/{node}")).json()
            assert (view["state"], view["power"], view["allocation"]) == ("Reserved", "Off", "one")
        slices = [await stack.link.find_slice(f"one-{plane}") for plane in ("ub", "rdma", "vpc")]
        assert all(each is not None for each in slices), "what links promise it is kept"

        await change(stack, "one", "start")
        assert (await stack.compute.find_instance("one")).state == "Starting"
        seconds = await reaches(stack, "one", "Active")
        assert seconds < 100, "switched on, booted and joined; no image is written again"
        after = await stack.active("one", 4)
        assert [(m.node, m.rank) for m in after.members] == [(m.node, m.rank) for m in before.members]
        await stack.check()
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_stopped_instance_is_resized_moved_and_deleted(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await stack.active("one", 3)
        await change(stack, "one", "stop")
        await reaches(stack, "one", "Stopped")
        await change(stack, "one", "resize", nodes="5")
        await reaches(stack, "one", "Stopped")
        grown = await stack.compute.find_instance("one")
        assert len([m for m in grown.members if m.role == "member"]) == 5
        assert powers(stack, [m.node for m in grown.members]) == {"Off"}
        answer = await stack.http["compute"].post("/v1/instances/one:move", json={"policy": "spread"})
        assert answer.status_code == 202, answer.text
        await reaches(stack, "one", "Stopped", 3600)
        await change(stack, "one", "start")
        await stack.active("one", 5)
        await change(stack, "one", "stop")
        await reaches(stack, "one", "Stopped")
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()


async def test_nodes_broken_while_stopped_are_replaced_at_start(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        before = await stack.active("one", 4)
        await change(stack, "one", "stop")
        await reaches(stack, "one", "Stopped")
        lost = before.members[1].node
        stack.impair("f", "node-down", lost)

        async def degraded() -> bool:
            view = await stack.compute.find_instance("one")
            return any(each.type == "Degraded" and each.status == "True" for each in view.conditions)

        await stack.until(degraded, "the loss is seen", within_s=600)
        view = await stack.compute.find_instance("one")
        assert (view.state, view.repairs) == ("Stopped", 0)
        await change(stack, "one", "start")
        after = await stack.active("one", 4)
        assert lost not in {m.node for m in after.members}
        await stack.check()


async def test_start_supersedes_a_stop(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await change(stack, "one", "stop")

        async def some_off() -> bool:
            nodes = (await stack.http["resource"].get("/v1/nodes")).json()["items"]
            return any(node["state"] == "Stopping" for node in nodes)

        await stack.until(some_off, "nodes are being switched off", within_s=100)
        await change(stack, "one", "start")
        await stack.active("one", 4)
        await stack.check()


async def test_restart_power_cycles_the_nodes(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        before = await stack.active("one", 2)
        nodes = [member.node for member in before.members]
        await change(stack, "one", "restart")
        await stack.until(lambda: _stage(stack, nodes, "power-off"), "every node is switched off", within_s=200)
        await stack.until(lambda: _stage(stack, nodes, "power-on"), "every node is switched on", within_s=200)
        await stack.active("one", 2)
        assert powers(stack, nodes) == {"On"}
        await change(stack, "one", "stop")
        await reaches(stack, "one", "Stopped")
        answer = await stack.http["compute"].post("/v1/instances/one:restart")
        assert answer.status_code == 409
        assert "only one that is Active" in answer.json()["detail"]


async def _stage(stack: Stack, nodes: list[str], stage: str) -> bool:
    return {stack.fleet.agent("resource", node).stage for node in nodes} == {stage}


async def test_instance_can_be_created_stopped(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, power="Off")
        await reaches(stack, "one", "Stopped")
        view = await stack.compute.find_instance("one")
        assert powers(stack, [member.node for member in view.members]) == {"Off"}
        await change(stack, "one", "start")
        await stack.active("one", 2)


async def test_crashes_only_delay_a_stop_and_a_start(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await stack.active("one", 3)
        for verb, state in (("stop", "Stopped"), ("start", "Active")):
            for victim in ("compute", "resource", "agents"):
                await change(stack, "one", verb)
                await stack.kill(victim)
                await stack.start(victim)
            await reaches(stack, "one", state)
        await stack.check()


async def test_partial_nodes_cannot_be_switched_off(tmp_path):
    async with Stack(tmp_path) as stack:
        answer = await stack.http["resource"].put("/v1/allocations/part", json={"npus": 2})
        assert answer.is_success, answer.text
        with pytest.raises(Conflict, match="switched off"):
            await stack.resource.bind("part", "Off")


async def test_impossible_spec_fails_and_can_be_changed(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("wide", 6, network={"rdma": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 10_000}})
        await reaches_failed(stack, "wide")
        view = await stack.compute.find_instance("wide")
        shown = {each.type: (each.status, each.reason) for each in view.conditions}
        assert shown["Scheduled"] == shown["Progressing"] == ("False", "InvalidField")
        assert not (await stack.http["resource"].get("/v1/allocations")).json()["items"]
        await stack.apply("wide", 3)
        await stack.active("wide", 3)


async def reaches_failed(stack: Stack, name: str) -> None:
    async def failed() -> bool:
        view = await stack.compute.find_instance(name)
        return view is not None and view.state == "Failed"

    await stack.until(failed, f"{name} is Failed", within_s=1200)


async def test_instance_stops_although_too_many_nodes_are_out_to_repair_it(tmp_path):
    """The stop was requested during a restart that cannot finish; once that is cancelled, the stop is next."""
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        members = {each.node for each in (await stack.active("one", 4)).members}
        for node in [node.name for node in await stack.resource.nodes() if node.name not in members][:8]:
            assert (await stack.http["resource"].post(f"/v1/nodes/{node}:quarantine", json={})).status_code == 200
        await change(stack, "one", "restart")
        restart = (await stack.compute.find_instance("one")).operation
        stack.impair("dark", "node-down", min(members))

        async def not_repaired() -> bool:
            degraded = next(e for e in (await stack.compute.find_instance("one")).conditions if e.type == "Degraded")
            return degraded.reason == "SafetyStop"

        await stack.until(not_repaired, "the lost member is not replaced", within_s=600, every_s=5)
        await change(stack, "one", "stop")
        answer = await stack.http["compute"].post(f"/v1/operations/{restart}:cancel")
        assert answer.status_code == 202, answer.text
        await reaches(stack, "one", "Stopped")
        await stack.check()
