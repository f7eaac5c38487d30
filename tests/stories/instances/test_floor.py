"""An instance whose lost members nobody can replace continues with the others, as long as its floor lets it, and is made
whole when there is room; below its floor it has Failed until then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.small_stack import SmallStack
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def view(stack: Stack, name: str = "one") -> dict[str, Any]:
    return (await stack.get("compute", f"/v1/instances/{name}")).json()


def condition(shown: dict[str, Any], type: str) -> tuple[str, str]:
    found = next(each for each in shown["conditions"] if each["type"] == type)
    return found["status"], found["reason"]


def members(shown: dict[str, Any]) -> list[str]:
    return [each["node"] for each in shown["members"] if each["role"] == "member"]


async def until(stack: Stack, state: str, degraded: str, name: str = "one") -> dict[str, Any]:
    """The instance once it is in that state and its condition Degraded has that reason."""
    shown: list[dict[str, Any]] = []

    async def so() -> bool:
        shown.append(await view(stack, name))
        return (shown[-1]["state"], condition(shown[-1], "Degraded")[1]) == (state, degraded)

    try:
        await stack.until(so, f"{name} is {state}, {degraded}", within_s=1800, every_s=2)
    except AssertionError as late:
        raise AssertionError(f"{late}: {shown[-1]['state']} {shown[-1]['conditions']}") from late
    return shown[-1]


async def events(stack: Stack, *reasons: str) -> list[str]:
    listed = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
    listed.sort(key=lambda each: int(each["name"].rpartition(".")[2]))
    return [each["reason"] for each in listed if each["reason"] in reasons]


async def operations(stack: Stack, verb: str) -> list[dict[str, Any]]:
    return (await stack.get("compute", f"/v1/operations?filter=verb%3D{verb}")).json()["items"]


async def full(stack: Stack, **spec: Any) -> list[str]:
    """`one` of four nodes beside `rest`, which has all others; its members."""
    await stack.apply("one", 4, **spec)
    await stack.active("one", 4)
    await stack.apply("rest", 8)
    await stack.active("rest", 8)
    return members(await view(stack))


async def test_instance_continues_degraded_and_is_restored(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack, minNodes=3)
        stack.impair("dark", "node-down", before[1])
        shown = await until(stack, "Active", "MembersMissing")
        assert (shown["nodes"], shown["minNodes"], shown["readyNodes"], shown["repairs"]) == (4, 3, 3, 1)
        assert sorted(members(shown)) == sorted({*before} - {before[1]})
        assert condition(shown, "Ready")[0] == "True"
        assert condition(shown, "NodesReady") == ("False", "MembersMissing")
        for each in (await stack.get("link", "/v1/slices")).json()["items"]:
            if each["instance"] == "one":
                assert sorted(each["members"]) == sorted(members(shown))
        (repair,) = await operations(stack, "replace-node")
        assert [each["rung"] for each in repair["rungs"]] == ["replace", "degrade"]
        await stack.check()

        await stack.restart("compute")
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert (shown["readyNodes"], len(members(shown))) == (4, 4)
        assert len(await operations(stack, "restore-members")) == 1
        assert await events(stack, "DegradedShape", "Restoring") == ["DegradedShape", "Restoring"]
        assert shown["repairs"] == 1, "having somebody back is no repair"
        await stack.check()


async def test_instance_below_its_floor_fails_and_returns_with_its_nodes(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        stack.impair("dark", "node-down", before[1])
        shown = await until(stack, "Failed", "NodeLost")
        assert condition(shown, "Progressing") == ("False", "BelowFloor")
        assert members(shown) == before, "it keeps its members"
        assert len(await operations(stack, "replace-node")) == 1, "nothing is tried while nothing could help"
        await stack.restart("compute")
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert sorted(members(shown)) == sorted(before)
        await stack.check()


async def test_instance_below_its_floor_is_repaired_when_a_node_is_free(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Failed", "NodeLost")
        await stack.apply("rest", 7)
        shown = await until(stack, "Active", "Whole")
        assert before[1] not in members(shown)
        assert shown["repairs"] == 1, "one failure, replaced once"
        await stack.check()


async def test_instance_below_its_floor_can_be_stopped_and_started(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Failed", "NodeLost")
        assert (await stack.http["compute"].post("/v1/instances/one:stop")).status_code == 202
        shown = await until(stack, "Stopped", "NodeLost")
        assert (members(shown), shown["generation"]) == (before, shown["observedGeneration"]), "it keeps its members"
        left = {*before} - {before[1]}
        assert {stack.fleet.agent("resource", node).status for node in left} == {"Off"}
        await stack.restart("compute")
        assert (await stack.http["compute"].post("/v1/instances/one:start")).status_code == 202

        async def refused() -> bool:
            shown = await view(stack)
            return (shown["state"], condition(shown, "Progressing")[1]) == ("Stopped", "BelowFloor")

        await stack.until(refused, "there is no node for the lost one", within_s=1800)
        await asyncio.sleep(300)
        assert len(await operations(stack, "start-instance")) == 1, "nothing is tried while nothing could help"
        await stack.apply("rest", 7)
        shown = await until(stack, "Active", "Whole")
        assert before[1] not in members(shown)
        await stack.check()


@pytest.mark.parametrize(
    ("asked", "state", "degraded"),
    [
        ({"power": "Off"}, "Stopped", "NodeLost"),
        ({"suspend": True}, "Suspended", "Whole"),
        ({"nodes": 3}, "Active", "Whole"),
        ({"minNodes": 3}, "Active", "MembersMissing"),
    ],
)
async def test_instance_below_its_floor_takes_its_changed_spec(tmp_path, asked, state, degraded):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        drain = {"reason": "so that the repair takes its time", "graceSeconds": 0}
        assert (await stack.http["compute"].put("/v1/workflow-drains/slow", json=drain)).is_success
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Repairing", "NodeLost")
        answer = await stack.http["compute"].put("/v1/instances/one", json={"nodes": 4} | asked)
        assert (answer.status_code, answer.json()["state"]) == (202, "Repairing")
        assert (await stack.http["compute"].delete("/v1/workflow-drains/slow")).is_success
        shown = await until(stack, state, degraded)
        assert shown["generation"] == shown["observedGeneration"]
        if state == "Active":
            assert sorted(members(shown)) == sorted({*before} - {before[1]}), "who works stays"
        await stack.check()


@pytest.mark.parametrize("when", ["while it is repaired", "once it has Failed"])
async def test_instance_of_whole_blocks_shrinks_below_its_floor(tmp_path, when):
    async with SmallStack(tmp_path) as stack:
        placement = {"blocks": [{"nodes": 2, "level": "cabinet"}]}
        before = await full(stack, placement=placement)
        drain = {"reason": "so that the repair takes its time", "graceSeconds": 0}
        if when == "while it is repaired":
            assert (await stack.http["compute"].put("/v1/workflow-drains/slow", json=drain)).is_success
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Repairing" if when == "while it is repaired" else "Failed", "NodeLost")
        answer = await stack.http["compute"].put("/v1/instances/one", json={"nodes": 2, "placement": placement})
        assert answer.status_code == 202, answer.text
        if when == "while it is repaired":
            assert (await stack.http["compute"].delete("/v1/workflow-drains/slow")).is_success
        shown = await until(stack, "Active", "Whole")
        assert before[1] not in members(shown)
        assert {*members(shown)} < {*before}, "a block that works stays"
        assert shown["generation"] == shown["observedGeneration"]
        await stack.check()


async def test_retried_repair_counts_once(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        policy = {"instance": "one", "rungs": ["replace"]}
        assert (await stack.http["compute"].put("/v1/recovery-policies/one", json=policy)).is_success
        stack.impair("dark", "node-down", before[1])

        async def tried_often() -> bool:
            return len(await operations(stack, "replace-node")) > 2

        await stack.until(tried_often, "it is tried again and again", within_s=1800)
        await stack.apply("rest", 7)
        shown = await until(stack, "Active", "Whole")
        assert before[1] not in members(shown)
        assert shown["repairs"] == 1, "one failure, replaced once"
        stack.impair("also", "node-down", members(shown)[0])
        await stack.apply("rest", 6)

        async def again() -> bool:
            shown = await view(stack)
            return (shown["state"], shown["repairs"], condition(shown, "Degraded")[1]) == ("Active", 2, "Whole")

        await stack.until(again, "another failure is another repair", within_s=1800)
        await stack.check()


async def test_two_lost_members_are_replaced_and_restored_once_each(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack, minNodes=3, spares=0)
        await stack.apply("rest", 7)
        await stack.active("rest", 7)
        stack.impair("a", "node-down", before[0])
        stack.impair("b", "node-down", before[1])
        shown = await until(stack, "Active", "MembersMissing")
        assert (shown["readyNodes"], shown["repairs"]) == (3, 1)
        await stack.apply("rest", 6)
        shown = await until(stack, "Active", "Whole")
        assert not {before[0], before[1]} & {*members(shown)}
        assert await events(stack, "NodeReplaced", "Restoring") == ["NodeReplaced", "Restoring"], "each once"
        assert (shown["nodes"], shown["readyNodes"], shown["repairs"]) == (4, 4, 1)
        await stack.check()


async def test_degraded_shape_keeps_whole_blocks_despite_lost_spares(tmp_path):
    async with SmallStack(tmp_path) as stack:
        placement = {"blocks": [{"nodes": 2, "level": "cabinet"}]}
        await stack.apply("one", 4, minNodes=2, spares=1, placement=placement)
        await stack.active("one", 4)
        await stack.apply("rest", 7)
        await stack.active("rest", 7)
        shown = await view(stack)
        spare = next(each["node"] for each in shown["members"] if each["role"] == "spare")
        stack.impair("s", "node-down", spare)
        await stack.until(lambda: _without(stack, spare), "the spare is gone", within_s=900)
        lost = members(shown)[0]
        stack.impair("a", "node-down", lost)
        shown = await until(stack, "Active", "MembersMissing")
        cabinets = [node.rpartition("-")[0] for node in members(shown)]
        assert (len(cabinets), len({*cabinets})) == (2, 1), "the other one of its block went with it"
        stack.repair("a")
        stack.repair("s")
        shown = await until(stack, "Active", "Whole")
        assert shown["readyNodes"] == 4
        await stack.apply("rest", 6)

        async def spare_again() -> bool:
            return condition(await view(stack), "SparesAvailable") == ("True", "SparesReady")

        await stack.until(spare_again, "it has a spare again", within_s=900)
        assert [each["role"] for each in (await view(stack))["members"]].count("spare") == 1
        await stack.check()


async def _without(stack: Stack, node: str) -> bool:
    return node not in {each["node"] for each in (await view(stack))["members"]}


async def test_degraded_instance_is_stopped_started_and_shrunk(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack, minNodes=2)
        stack.impair("a", "node-down", before[3])
        await until(stack, "Active", "MembersMissing")
        for verb, state in (("stop", "Stopped"), ("start", "Active")):
            answer = await stack.http["compute"].post(f"/v1/instances/one:{verb}")
            assert answer.status_code == 202, answer.text
            shown = await until(stack, state, "MembersMissing")
            assert len(members(shown)) == 3
        answer = await stack.http["compute"].post("/v1/instances/one:resize?nodes=1")
        assert (answer.status_code, answer.json()["field"]) == (422, "nodes"), "its floor is 2"
        answer = await stack.http["compute"].post("/v1/instances/one:resize?nodes=3")
        assert answer.status_code == 202, answer.text
        shown = await until(stack, "Active", "Whole")
        assert (shown["nodes"], shown["readyNodes"]) == (3, 3)
        assert await operations(stack, "restore-members") == []
        for floor in (0, 4):
            body = {"nodes": 3, "minNodes": floor}
            answer = await stack.http["compute"].put("/v1/instances/one", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, "minNodes"), answer.text
        assert (await view(stack))["generation"] == shown["generation"], "nothing has changed"
        await stack.check()


async def test_instance_with_too_few_members_does_not_start(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        assert (await stack.http["compute"].post("/v1/instances/one:stop")).status_code == 202
        await until(stack, "Stopped", "Whole")
        stack.impair("a", "node-down", before[3])
        await until(stack, "Stopped", "NodeLost")
        others = [stack.fleet.agent("resource", node) for node in before[:3]]
        switched_on = []

        async def refused() -> bool:
            switched_on.extend(each.stage for each in others if each.status != "Off")
            return condition(await view(stack), "Progressing") == ("False", "BelowFloor")

        assert (await stack.http["compute"].post("/v1/instances/one:start")).status_code == 202
        await stack.until(refused, "it says why it does not start", within_s=600)
        await stack.clock.sleep(600)
        await refused()
        assert (await view(stack))["state"] == "Stopped"
        assert switched_on == [], "nobody is switched on for nothing"
        assert len(await operations(stack, "start-instance")) == 1, "it is not tried before that could help"
        stack.repair("a")
        await until(stack, "Active", "Whole")
        await stack.check()


async def test_safety_stop_and_policy_prevent_the_degraded_shape(tmp_path):
    async with SmallStack(tmp_path, settings={"compute": {"lost_per_supernode": 1}}) as stack:
        before = await full(stack, minNodes=1)
        policy = {"instance": "one", "rungs": ["replace"]}
        answer = await stack.http["compute"].put("/v1/recovery-policies/whole", json=policy)
        assert answer.status_code == 200, answer.text
        stack.impair("a", "node-down", before[0])
        await stack.until(lambda: _refused(stack), "there is no node for it", within_s=900)
        assert members(await view(stack)) == before, "its policy leaves `degrade` out"
        stack.impair("b", "node-down", before[1])
        await until(stack, "Active", "SafetyStop")
        assert (await stack.http["compute"].delete("/v1/recovery-policies/whole")).status_code == 204
        for _ in range(20):
            assert members(await view(stack)) == before, "nobody is let go while it is stopped"
            await stack.clock.sleep(10)
        stack.repair("b")
        shown = await until(stack, "Active", "MembersMissing")
        assert sorted(members(shown)) == sorted(before[1:])
        await stack.check()


async def _refused(stack: Stack) -> bool:
    found = await operations(stack, "replace-node")
    return bool(found) and found[0]["done"] and found[0]["error"]["reason"] == "InsufficientCapacity"
