"""`/v1/faults` of MatrixCompute: what agents reported and what their silence says, of every node and for as long as it
stands."""

from __future__ import annotations

from typing import Any

import pytest

from matrixresource.contract.allocations import AllocationRequest
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def faults(stack: Stack) -> dict[str, dict[str, Any]]:
    """By node."""
    answer = await stack.get("compute", "/v1/faults")
    assert answer.status_code == 200
    return {item["node"]: item for item in answer.json()["items"]}


async def test_faults_are_listed_with_level_and_action_until_cleared(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3, spares=1)
        member = (await stack.active("one", 3)).members[0].node
        reserved = (await stack.resource.reserve("mine", AllocationRequest(nodes=1))).members[0].node
        free = next(node.name for node in await stack.resource.nodes() if node.allocation is None)
        assert await faults(stack) == {}
        stack.impair("free", "node-down", free)
        stack.impair("hand", "node-down", reserved)

        async def listed_are(*nodes: str) -> None:
            async def listed() -> bool:
                return set(await faults(stack)) == set(nodes)

            await stack.until(listed, f"{nodes} are listed", within_s=900)

        await listed_are(free, reserved)
        stack.impair("npu", "npu-fault", member)
        await listed_are(free, reserved, member)
        listed = await faults(stack)
        for node in (free, reserved):
            of = listed[node]
            assert (of["code"], of["component"], of["level"], of["action"]) == (
                "NodeLost", "node", "Separate", "NoNewWork",
            )  # fmt: skip
            assert "instance" not in of
        assert listed[member]["component"].startswith("npu")
        assert listed[member]["level"] in ("Separate", "Restart", "RestartRequest", "RestartBusiness", "FreeRestart")
        seen = (await stack.get("compute", f"/v1/faults/{listed[free]['name']}")).json()
        assert (seen["node"], seen["state"]) == (free, "Active")

        async def replaced() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and view.repairs == 1 and view.state == "Active"

        await stack.until(replaced, "the member was replaced", within_s=900)
        left = (await faults(stack))[member]
        assert (left["action"], left.get("instance")) == ("NoNewWork", None), "it stands on, and is nobody's"
        await stack.restart("compute")
        await listed_are(free, reserved, member)
        for name in ("free", "hand", "npu"):
            stack.repair(name)
        await listed_are()


async def test_fault_of_a_member_names_its_instance(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 48)
        member = (await stack.active("one", 48)).members[0].node
        stack.impair("npu", "npu-fault", member)

        async def listed() -> bool:
            return member in await faults(stack)

        await stack.until(listed, "it is listed", within_s=600)
        of = (await faults(stack))[member]
        assert (of["action"], of["instance"]) == ("Replace", "one"), "there is no room to do so yet"


async def test_fault_that_nothing_repairs_is_an_event_of_its_instance(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=1)
        member = (await stack.active("one", 2)).members[0].node
        for name, kind, level in (
            ("slow", "slow-node", "SubHealth"),
            ("nic", "rdma-nic-fault", "(PreSeparate); it keeps working until it is released"),
        ):
            stack.impair(name, kind, member)

            async def reported(level: str = level) -> bool:
                events = (await stack.get("compute", "/v1/events", params={"filter": "about=one"})).json()["items"]
                return any(
                    each["reason"] == "MemberSubHealthy" and member in each["message"] and level in each["message"]
                    for each in events
                )

            await stack.until(reported, f"an event names {level}", within_s=300)
            view = await stack.compute.find_instance("one")
            assert view is not None
            assert view.state == "Active"
            degraded = next(each for each in view.conditions if each.type == "Degraded")
            assert kind != "slow-node" or (degraded.status == "False" and member in degraded.message)
            stack.repair(name)

        async def is_over() -> bool:
            events = (await stack.get("compute", "/v1/events", params={"filter": "about=one"})).json()["items"]
            return events[-1]["reason"] == "MemberHealthy"

        await stack.until(is_over, "an event says that it is over", within_s=300)
