"""The life of a node on the whole stack: verified, serviced, quarantined, recovered and retired, with and without somebody
who has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

NODE = "sn0-c05-n1"


async def ask(stack: Stack, node: str, verb: str, status: int = 200, **body: Any) -> dict[str, Any]:
    response = await stack.http["resource"].post(f"/v1/nodes/{node}:{verb}", json=body)
    assert response.status_code == status, response.text
    return response.json()


async def view(stack: Stack, node: str = NODE) -> dict[str, Any]:
    return await stack.resource.get(f"/v1/nodes/{node}")


async def until_state(stack: Stack, state: str, node: str = NODE, within_s: float = 300) -> dict[str, Any]:
    seen: list[dict[str, Any]] = []

    async def there() -> bool:
        seen.append(await view(stack, node))
        return seen[-1]["state"] == state

    await stack.until(there, f"{node} is {state}", within_s=within_s)
    return seen[-1]


async def events(stack: Stack, node: str = NODE) -> list[str]:
    items = (await stack.get("resource", "/v1/events")).json()["items"]
    return [each["reason"] for each in items if each["about"] == node]


async def member(stack: Stack, name: str) -> str:
    instance = await stack.active(name)
    return next(each.node for each in instance.members if each.role == "member")


async def test_quarantined_node_returns_only_after_a_check(tmp_path):
    async with Stack(tmp_path) as stack:
        quarantined = await ask(stack, NODE, "quarantine", reason="smells of smoke")
        assert (quarantined["state"], quarantined["unschedulableReason"]) == ("Quarantined", "Quarantined")
        assert "smells of smoke" in quarantined["stateMessage"]
        again = await ask(stack, NODE, "quarantine")
        assert again["etag"] == quarantined["etag"], "asked twice it finds what it did"
        refused = await ask(stack, NODE, "clean", 409)
        assert ":service" in refused["detail"], "the refusal names what is for that state"
        assert ":recover" in refused["detail"]
        tried = await stack.http["resource"].post(f"/v1/nodes/{NODE}:recover?validateOnly=true", json={})
        assert tried.json()["desiredState"] == "Available"
        assert (await view(stack))["state"] == "Quarantined", "that was only tried"
        stale = {"If-Match": '"1"'}
        assert (await stack.http["resource"].post(f"/v1/nodes/{NODE}:recover", headers=stale)).status_code == 412
        await stack.restart("resource")
        assert (await view(stack))["state"] == "Quarantined"
        stack.impair("bad", "stage-failure", NODE, stage="npu-self-test", why="die 3 answers wrong")
        assert (await ask(stack, NODE, "recover"))["state"] == "Verifying"
        failed = await until_state(stack, "Quarantined")
        assert failed["stateReason"] == "StageFailed"
        assert failed["stateMessage"] == "npu-self-test: die 3 answers wrong (attempt 2 of 2)"
        stack.repair("bad")
        await ask(stack, NODE, "recover")
        await stack.restart("agents")
        await stack.restart("resource")
        back = await until_state(stack, "Available")
        assert (back["schedulable"], back.get("stateReason"), back["stateMessage"]) == (True, None, "")
        assert await events(stack) == ["Quarantined", "Verifying", "Quarantined", "Verifying"]
        await stack.check()


async def test_member_on_a_serviced_node_moves_first(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        node = await member(stack, "one")
        assert (await ask(stack, node, "service"))["state"] == "Draining"
        assert (await ask(stack, node, "recover"))["state"] == "Active", "it goes on as before"
        await ask(stack, node, "service", reason="a fan")
        away = await until_state(stack, "Servicing", node)
        assert away.get("allocation") is None
        after = await stack.active("one", 2)
        assert node not in {each.node for each in after.members}
        assert after.repairs == 0, "nothing was lost"
        await stack.apply("all", 44)
        assert node not in {each.node for each in (await stack.active("all", 44)).members}, "none is allocated there"
        await ask(stack, node, "recover")
        await until_state(stack, "Available", node)
        assert ("Draining", "Servicing") in stack.node_moves()
        await stack.check()


async def test_immovable_member_is_reported_without_blocking_others(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("home", 1)
        await stack.active("home")
        await stack.apply("guest", 2, affinity={"instances": ["home"], "level": "cabinet"})
        guest = await member(stack, "guest")
        await stack.apply("other", 2)
        other = await member(stack, "other")
        await stack.compute.delete_instance("home")
        await stack.gone("home")
        await ask(stack, guest, "service")
        await ask(stack, other, "service")
        await until_state(stack, "Servicing", other)
        items = (await stack.get("compute", "/v1/events", params={"filter": "about=guest"})).json()["items"]
        blocked = [each["message"] for each in items if each["reason"] == "DrainBlocked"]
        assert blocked == [f"{guest} cannot leave: affinity refers to allocation 'home', which does not exist"]
        assert (await view(stack, guest))["state"] == "Draining"
        await stack.active("guest", 2)


async def test_retiring_an_allocated_node_needs_force(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        node = await member(stack, "one")
        refused = await ask(stack, node, "retire", 409)
        assert "replaces it as a lost node" in refused["detail"]
        assert refused["blocking"] == [{"domain": node, "allocations": ["one"]}]
        capacity = (await stack.get("resource", "/v1/capacity")).json()["nodesUp"]
        retired = await ask(stack, node, "retire", force=True)
        assert (retired["state"], retired["stateReason"]) == ("Retired", "Forced")
        assert "its holder lost it" in retired["stateMessage"]
        await stack.restart("resource")

        async def replaced() -> bool:
            instance = await stack.compute.find_instance("one")
            return instance.state == "Active" and node not in {each.node for each in instance.members}

        await stack.until(replaced, "it is replaced")
        instance = await stack.active("one", 2)
        assert instance.repairs == 1
        assert (await view(stack, node))["state"] == "Retired"
        assert (await stack.get("resource", "/v1/capacity")).json()["nodesUp"] == capacity - 1
        await ask(stack, node, "recover", 409)
        await ask(stack, node, "enrol")
        await until_state(stack, "Available", node)
        await stack.check()


async def test_node_is_verified_inspected_and_cleaned_by_hand(tmp_path):
    async with Stack(tmp_path) as stack:
        assert (await ask(stack, NODE, "verify"))["state"] == "Verifying"
        assert (await until_state(stack, "Manageable"))["unschedulableReason"] == "Manageable"
        assert (await ask(stack, NODE, "inspect"))["state"] == "Inspecting"
        await until_state(stack, "Manageable")
        assert (await ask(stack, NODE, "clean"))["state"] == "Cleaning"
        await until_state(stack, "Available")
        await stack.check()


async def test_lost_node_is_verified_before_it_is_available(tmp_path):
    async with Stack(tmp_path) as stack:
        stack.impair("dark", "node-down", NODE)
        await until_state(stack, "Quarantined")
        stack.repair("dark")
        await until_state(stack, "Available")
        moves = stack.node_moves()
        assert ("Quarantined", "Verifying") in moves
        assert ("Quarantined", "Available") not in moves


async def test_node_failing_its_self_test_is_replaced_during_creation(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        first = [each.node for each in (await stack.compute.find_instance("one")).members if each.role == "member"]
        while not first:
            await stack.until(lambda: _has_members(stack), "nodes are reserved", within_s=30)
            first = [each.node for each in (await stack.compute.find_instance("one")).members]
        bad = first[0]
        stack.impair("bad", "stage-failure", bad, stage="npu-self-test", why="no answer from NPU 5")
        heard: list[str] = []

        async def shown() -> bool:
            instance = await stack.compute.find_instance("one")
            heard.append(next(c.message for c in instance.conditions if c.type == "NodesReady"))
            return instance.state == "Active"

        await stack.until(shown, "it comes up", every_s=1)
        assert any("at npu-self-test" in message for message in heard), heard
        instance = await stack.active("one", 4)
        assert bad not in {each.node for each in instance.members}
        node = await view(stack, bad)
        assert (node["state"], node["stateReason"]) == ("Quarantined", "StageFailed")
        assert node["stateMessage"].startswith("npu-self-test: no answer from NPU 5")
        stack.repair("bad")
        await ask(stack, bad, "recover")
        await until_state(stack, "Available", bad)
        assert {
            ("Deploying", "Quarantined"),
            ("Quarantined", "Verifying"),
            ("Verifying", "Available"),
        } <= stack.node_moves()
        await stack.check()


async def _has_members(stack: Stack) -> bool:
    return bool((await stack.compute.find_instance("one")).members)


async def test_fastest_setting_detects_a_lost_node_within_seconds(tmp_path):
    fastest = {"agents": {"heartbeat": 0.5, "lease": 1.5}, "resource": {"lease_watch": 0.5}}
    async with Stack(tmp_path, settings=fastest) as stack:
        stack.impair("dark", "node-down", NODE)

        async def lost() -> bool:
            return (await view(stack))["agent"] == "Lost"

        assert await stack.until(lost, "it is found", every_s=0.25, within_s=60) <= 5
        stack.repair("dark")
        await until_state(stack, "Available")
        assert {node.agent for node in await stack.resource.nodes()} == {"Connected"}, "nobody else was given up"


async def test_flapping_node_is_quarantined(tmp_path):
    async with Stack(tmp_path) as stack:
        for occasion in range(4):
            stack.impair(f"dark-{occasion}", "node-down", NODE)
            await until_state(stack, "Quarantined")
            stack.repair(f"dark-{occasion}")
            if occasion < 3:
                await until_state(stack, "Available")

        async def kept_out() -> bool:
            return (await view(stack)).get("stateReason") == "Flapping"

        await stack.until(kept_out, "it has come and gone too often", within_s=120)
        await stack.restart("resource")
        await stack.apply("all", 47)
        assert NODE not in {each.node for each in (await stack.active("all", 47)).members}
        await ask(stack, NODE, "recover")
        await until_state(stack, "Available")
        assert "Quarantined" in await events(stack)
        await stack.check()
