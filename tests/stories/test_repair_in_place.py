"""Faults that a restart, a reset or a reboot ends, and those that none of them does: the ladder on the whole stack."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

RESTART_REQUEST, RESTART = "80C98000", "80E18005"
"""Codes of the levels RestartRequest and Restart."""


async def repair_of(stack: Stack) -> dict[str, Any] | None:
    answer = await stack.get("compute", "/v1/operations", params={"filter": "verb=replace-node"})
    found = answer.json()["items"]
    assert len(found) <= 1, "it is one operation"
    return found[0] if found else None


async def recovered(stack: Stack) -> dict[str, Any]:
    async def done() -> bool:
        repair = await repair_of(stack)
        return repair is not None and repair["done"]

    await stack.until(done, "it is repaired", within_s=1800, every_s=5)
    repair = await repair_of(stack)
    assert repair is not None
    assert repair["state"] == "Done"
    return repair


def rungs(repair: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["node"], each["rung"]) for each in repair["rungs"]]


async def codes_of(stack: Stack, node: str) -> list[str]:
    return [each["code"] for each in (await stack.get("resource", f"/v1/nodes/{node}")).json()["faults"]]


@pytest.mark.parametrize(("code", "rung"), [(RESTART_REQUEST, "restart"), (RESTART, "reset-npu")])
async def test_fault_cleared_by_its_rung_costs_no_node(tmp_path, code, rung):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        before = await stack.active("one", 2)
        node = before.members[0].node
        stack.impair("npu", "npu-fault", node, npu=3, code=code)

        async def noticed() -> bool:
            return await repair_of(stack) is not None

        await stack.until(noticed, "it is noticed", within_s=120)
        (fault,) = (await stack.get("compute", "/v1/faults")).json()["items"]
        assert fault["action"] == "Repair"
        await stack.restart("compute")
        repair = await recovered(stack)
        assert rungs(repair) == [(node, rung)]
        assert code in repair["rungs"][0]["why"]
        assert repair["recovery"]["totalS"] < 60
        after = await stack.active("one", 2)
        assert [(m.node, m.rank) for m in after.members] == [(m.node, m.rank) for m in before.members]
        assert await codes_of(stack, node) == []
        injected = (await stack.get("agents", "/v1/faults")).json()["items"]
        assert [each["state"] for each in injected] == ["Ended"]
        reasons = [each["reason"] for each in (await stack.get("compute", "/v1/events")).json()["items"]]
        assert reasons.index("NodeUnhealthy") < reasons.index("RepairBegun") < reasons.index("Recovered")
        await stack.restart("agents")
        await stack.active("one", 2)
        await stack.check()


async def test_persistent_fault_escalates_to_replacement(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=1)
        node = (await stack.active("one", 2)).members[0].node
        stack.impair("npu", "npu-fault", node, npu=3, code=RESTART, endsWith="none")
        repair = await recovered(stack)
        assert rungs(repair) == [(node, "reset-npu"), (node, "reboot"), (node, "replace")]
        assert repair["rungs"][1]["why"].startswith("reset-npu did not help: ")
        after = await stack.active("one", 2)
        assert node not in {m.node for m in after.members}
        await stack.check()


async def test_timed_out_rung_escalates(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        node = (await stack.active("one", 2)).members[0].node
        stack.impair("slow", "slow-node", node, factor=30)
        stack.impair("npu", "npu-fault", node, npu=3, code=RESTART_REQUEST)
        repair = await recovered(stack)
        assert rungs(repair) == [(node, "restart"), (node, "replace")]
        assert repair["rungs"][1]["why"].startswith("restart took longer than 60 s: ")
        await stack.check()


async def test_failed_self_test_escalates_to_replacement(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        node = (await stack.active("one", 2)).members[0].node
        stack.impair("bad", "stage-failure", node, stage="npu-self-test", why="no answer from NPU 3")
        stack.impair("npu", "npu-fault", node, npu=3, code=RESTART)
        repair = await recovered(stack)
        assert rungs(repair) == [(node, "reset-npu"), (node, "replace")]
        assert "no answer from NPU 3" in repair["rungs"][1]["why"]
        await stack.check()


@pytest.mark.parametrize(
    ("of", "task", "status"),
    [("member", "reset-npu", 200), ("spare", "reset-npu", 409), ("free", "reset-npu", 409), ("member", "kick", 422)],
)
async def test_only_members_are_repaired_in_place(tmp_path, of, task, status):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 1, spares=1)
        by_role = {each.role: each.node for each in (await stack.active("one", 1)).members}
        free = next(node.name for node in await stack.resource.nodes() if node.allocation is None)
        node = (by_role | {"free": free})[of]
        body = {"node": node, "task": task}
        answer = await stack.http["resource"].post("/v1/allocations/one:repair", json=body)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.json()["field"] == "task"
        await stack.active("one", 1)
        await stack.check()
