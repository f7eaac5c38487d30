"""Recoveries on the whole stack: how long each part takes, what they cost over time, and when nothing is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

PARTS = ("detectS", "fenceS", "tellS", "drainS", "replaceS", "bootS", "serveS")


async def items(stack: Stack, collection: str, **params: Any) -> list[dict[str, Any]]:
    answer = await stack.get("compute", f"/v1/{collection}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def repaired(stack: Stack, name: str, repairs: int = 1) -> None:
    async def there() -> bool:
        view = await stack.compute.find_instance(name)
        return view.repairs == repairs and view.state == "Active"

    await stack.until(there, f"{name} is repaired", within_s=900, every_s=5)


async def test_recovery_times_survive_a_kill_and_add_up(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        lost = (await stack.active("one", 4)).members[0].node
        stack.impair("dark", "node-down", lost)

        async def booting() -> bool:
            found = await items(stack, "operations", filter="verb=replace-node")
            return bool(found) and found[0]["step"] == "await_nodes"

        await stack.until(booting, "its successor boots", within_s=300)
        (operation,) = await items(stack, "operations", filter="verb=replace-node")
        assert set(operation["recovery"]) == {*PARTS[:5], "totalS"}, "the parts so far"
        node = (await stack.get("resource", f"/v1/nodes/{lost}")).json()
        assert (node["cordonedBy"], node["state"]) == (["recovery"], "Quarantined")
        await stack.restart("compute")
        await repaired(stack, "one")
        (operation,) = await items(stack, "operations", filter="verb=replace-node")
        times = operation["recovery"]
        assert times["totalS"] == pytest.approx(sum(times[part] for part in PARTS), abs=0.01)
        assert 50 <= times["detectS"] <= 75, "two leases of 30 s, from when it was heard last"
        assert times["fenceS"] + times["replaceS"] < 5
        assert times["tellS"] + times["drainS"] < 1, "nobody is asked for a node that is lost"
        assert 5 <= times["bootS"] <= 30, "a spare only joins; and compute was away meanwhile"
        view = await stack.compute.find_instance("one")
        assert view.last_recovery.wire() == times
        (event,) = [each for each in await items(stack, "events") if each["reason"] == "Recovered"]
        assert event["message"].startswith(f"{lost} (replace): in ")
        assert "boot" in event["message"]
        (sums,) = await items(stack, "reliability")
        assert (sums["name"], sums["recoveries"]) == ("one", 1)
        assert sums["mttrS"] == pytest.approx(times["totalS"], abs=0.01)
        assert times["totalS"] - 10 <= sums["downS"] <= times["totalS"], "it was heard last before it was Active"
        assert 0 < sums["ettr"] < 1
        stack.repair("dark")

        async def back() -> bool:
            node = (await stack.get("resource", f"/v1/nodes/{lost}")).json()
            return node["state"] == "Available" and node["cordonedBy"] == []

        await stack.until(back, "a check has returned it and lifted its cordon", within_s=600)
        assert ("Quarantined", "Verifying") in stack.node_moves()
        later = (await items(stack, "reliability"))[0]
        assert later["ettr"] > sums["ettr"]
        metrics = (await stack.get("compute", "/metrics")).text
        assert 'instance_recovery_seconds_count{part="total"} 1.0' in metrics
        assert 'instance_recovery_seconds_count{part="detect"} 1.0' in metrics
        await stack.check()


async def test_self_recovered_member_counts_as_downtime_only(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("all", 48)
        member = (await stack.active("all", 48)).members[0].node
        stack.impair("hang", "agent-hang", member)

        async def down() -> bool:
            (sums,) = await items(stack, "reliability")
            return sums["downS"] > 60

        await stack.until(down, "it counts as down", within_s=300, every_s=5)
        stack.repair("hang")
        await stack.active("all", 48)

        async def whole() -> bool:
            node = (await stack.get("resource", f"/v1/nodes/{member}")).json()
            return node["cordonedBy"] == [] and node["agent"] == "Connected"

        await stack.until(whole, "its first report lifts the cordon", within_s=300)
        (sums,) = await items(stack, "reliability")
        assert (sums["recoveries"], sums.get("mttrS")) == (0, None)
        before = sums["downS"]
        await stack.until(lambda: _passed(stack, sums["ettr"]), "time passes", within_s=300)
        assert (await items(stack, "reliability"))[0]["downS"] == before, "it is not down any more"


async def _passed(stack: Stack, ettr: float) -> bool:
    return (await items(stack, "reliability"))[0]["ettr"] > ettr


async def test_stage_failing_everywhere_stops_replacements(tmp_path):
    async with Stack(tmp_path) as stack:
        for node in await stack.resource.nodes():
            stack.impair(node.name, "stage-failure", node.name, stage="write-image", why="no such image")
        await stack.apply("one", 4)

        async def quarantined() -> int:
            return sum(node.state == "Quarantined" for node in await stack.resource.nodes())

        async def stopped() -> bool:
            nodes = await stack.resource.nodes()
            return sum(node.state_reason == "StageFailedTolerated" for node in nodes) == 4

        await stack.until(stopped, "nobody replaces them any more", within_s=3600, every_s=20)
        assert await quarantined() == 8
        instance = await stack.compute.find_instance("one")
        assert instance.state == "Provisioning"
        ready = next(each for each in instance.conditions if each.type == "NodesReady")
        assert "at write-image" in ready.message
        for node in await stack.resource.nodes():
            stack.repair(node.name)
        await stack.active("one", 4, within_s=900)
        assert await quarantined() == 8, "somebody has to look at these"
        assert {node.state_reason for node in await stack.resource.nodes()} == {None, "StageFailed"}
        await stack.check()


async def test_quarantined_nodes_count_for_the_safety_stop(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        members = {each.node for each in (await stack.active("one", 4)).members}
        free = [node.name for node in await stack.resource.nodes() if node.name not in members]
        for node in free[:8]:
            answer = await stack.http["resource"].post(f"/v1/nodes/{node}:quarantine", json={})
            assert answer.status_code == 200
        lost = sorted(members)[0]
        stack.impair("dark", "node-down", lost)

        async def stopped_by_the_limit() -> bool:
            view = await stack.compute.find_instance("one")
            degraded = next(each for each in view.conditions if each.type == "Degraded")
            return degraded.reason == "SafetyStop" and "9 nodes of sn0 are silent or quarantined" in degraded.message

        await stack.until(stopped_by_the_limit, "nothing is replaced", within_s=300, every_s=5)
        answer = await stack.http["resource"].post(f"/v1/nodes/{free[0]}:service", json={})
        assert answer.status_code == 200, answer.text
        await repaired(stack, "one")
        assert lost not in {each.node for each in (await stack.active("one", 4)).members}
        await stack.check()


async def test_powerless_cabinet_is_isolated_and_repaired_in_one_operation(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 8, spares=4)
        before = await stack.active("one", 8)
        cabinet = next(each.cabinet for each in before.members if each.role == "member")
        inside = [each.node for each in before.members if each.cabinet == cabinet and each.role == "member"]
        assert len(inside) == 4
        await stack.apply("two", 1)
        await stack.active("two", 1)
        stack.impair("dark", "cabinet-power", cabinet)

        async def lost() -> bool:
            return any(each["reason"] == "Recovered" for each in await items(stack, "events"))

        await stack.until(lost, "it is recovered", within_s=600, every_s=5)
        (operation,) = await items(stack, "operations", filter="verb=replace-node")
        assert sorted(each["node"] for each in operation["rungs"]) == inside, "one operation for all of them"
        assert len({each["at"] for each in operation["rungs"]}) == 1, "at once, not one after the other"
        events = [each for each in await items(stack, "events") if each["about"] == "one"]
        events.sort(key=lambda each: int(each["name"].rpartition(".")[2]))
        reasons = [each["reason"] for each in events]
        assert reasons.index("DomainLost") < reasons.index("NodeReplaced")
        assert (reasons.count("DomainLost"), reasons.count("NodeReplaced")) == (1, 4)
        after = await stack.active("one", 8)
        assert not [each for each in after.members if each.cabinet == cabinet]
        nodes = [node for node in await stack.resource.nodes() if node.cabinet == cabinet]
        assert {tuple(node.cordoned_by) for node in nodes} == {("recovery",)}
        stack.repair("dark")

        async def back() -> bool:
            nodes = [node for node in await stack.resource.nodes() if node.cabinet == cabinet]
            return {(node.state, *node.cordoned_by) for node in nodes} == {("Available",)}

        await stack.until(back, "checks have returned them", within_s=600, every_s=5)
        await stack.check()


async def test_healthy_nodes_of_a_suspect_cabinet_are_cleared(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        first, second = [each.node for each in (await stack.active("one", 2)).members]
        cabinet = first.rpartition("-")[0]
        assert second.startswith(cabinet)
        stack.impair("a", "node-down", first)
        stack.impair("b", "node-down", second)
        free = [f"{cabinet}-n{number}" for number in range(4) if f"{cabinet}-n{number}" not in (first, second)]

        async def isolated() -> bool:
            nodes = [node for node in await stack.resource.nodes() if node.name in free]
            return all(node.cordoned_by == ["recovery"] for node in nodes)

        await stack.until(isolated, "the whole cabinet is isolated", within_s=300)
        after = await stack.active("one", 2)
        assert not [each for each in after.members if each.cabinet == cabinet], "nothing came to lie there meanwhile"

        async def cleared() -> bool:
            nodes = [node for node in await stack.resource.nodes() if node.name in free]
            return {(node.state, *node.cordoned_by) for node in nodes} == {("Available",)}

        await stack.until(cleared, "a check clears those that work", within_s=300)
        assert ("Available", "Verifying") in stack.node_moves()
        await stack.check()


async def test_only_fatal_faults_cost_a_node(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 36, spares=6)
        before = await stack.active("one", 36)
        names = [node.name for node in await stack.resource.nodes()]
        fatal = names[3::10]
        for name in names:
            code = "020001001" if name in fatal else "010001002"
            stack.impair(name, "npu-fault", name, npu=3, die=0, code=code)
        await repaired(stack, "one")
        after = await stack.active("one", 36)
        assert {each.node for each in after.members}.isdisjoint(fatal)
        members = {(each.node, each.rank) for each in before.members if each.role == "member"}
        kept = {each for each in members if each[0] not in fatal}
        assert kept <= {(each.node, each.rank) for each in after.members}, "nobody else moved"
        (operation,) = await items(stack, "operations", filter="verb=replace-node")
        assert {each["node"] for each in operation["rungs"]} <= set(fatal)
        nodes = await stack.resource.nodes()
        assert {node.name for node in nodes if node.health == "Unhealthy"} == set(fatal)
        assert {node.name for node in nodes if node.cordoned_by} <= set(fatal)
        await stack.check()


async def test_lost_l2_chip_loses_no_node(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        node = (await stack.active("one", 4)).members[0].node
        stack.impair("chip", "switch-down", "sn0-l2p3-k11")

        async def dark() -> bool:
            links = (
                await stack.get("link", "/v1/links", params={"node": node, "plane": "ub", "pageSize": 1000})
            ).json()
            return sum(each["gbps"] == 0 for each in links["items"]) == 1

        await stack.until(dark, "its port is dark", within_s=120)
        await stack.until(lambda: _looked_again(stack), "compute has looked", within_s=120)
        assert {each["verb"] for each in await items(stack, "operations")} == {"create-instance"}
        assert {tuple(node.cordoned_by) for node in await stack.resource.nodes()} == {()}
        view = await stack.active("one", 4)
        assert all(each.programmed for each in view.slices), "MatrixLink has moved the routes"


async def _looked_again(stack: Stack) -> bool:
    """The fault is in MatrixCompute's table, and harmless."""
    found = await items(stack, "faults")
    return bool(found) and {each["action"] for each in found} == {"None"}


async def test_lost_cabinet_is_fenced_as_a_whole(tmp_path):
    """In virtual time, where what is computed takes none, only what waits for a period or for other news would show."""
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        cabinet = (await stack.active("one", 3)).members[0].node.rpartition("-")[0]
        stack.impair("dark", "cabinet-power", cabinet)

        async def fenced() -> bool:
            found = await items(stack, "operations", filter="verb=replace-node")
            return bool(found) and "fenceS" in (found[0]["recovery"] or {})

        await stack.until(fenced, "the cabinet is fenced", within_s=300)
        (operation,) = await items(stack, "operations", filter="verb=replace-node")
        assert operation["recovery"]["fenceS"] < 0.05
        nodes = [node for node in await stack.resource.nodes() if str(node.name).startswith(f"{cabinet}-")]
        assert [node.cordoned_by for node in nodes] == [["recovery"]] * 4, "the one that nobody has, too"
        await repaired(stack, "one")
