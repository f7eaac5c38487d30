"""A member that fails while its instance is being repaired joins the repair by the same rules: it is fenced, drained
where it serves, and repaired or replaced once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import members
from tests.stories.repairs.serving import drain_of, operations, serving_under_load, statistics, step_of

pytestmark = pytest.mark.looptime

RESTART_REQUEST = "80C98000"


async def at_step(stack: Stack, step: str) -> None:
    async def so() -> bool:
        return await step_of(stack, "replace-node") == step

    await stack.until(so, f"the repair is at {step}", within_s=600, every_s=1)


async def the_repair(stack: Stack) -> dict[str, Any]:
    """The only one there was, once the instance is whole."""

    async def done() -> bool:
        view = await stack.compute.find_instance("one")
        return view is not None and (view.repairs, view.state) == (1, "Active")

    await stack.until(done, "it is repaired", within_s=1800, every_s=5)
    (operation,) = await operations(stack, "replace-node")
    return operation


async def reported(stack: Stack, *reasons: str) -> list[tuple[str, str]]:
    """Reason and message of its events for these reasons, in their order."""
    listed = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
    listed.sort(key=lambda each: int(each["name"].rpartition(".")[2]))
    return [(each["reason"], each["message"]) for each in listed if each["reason"] in reasons]


async def test_working_member_drains_during_another_repair(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 6)
        await stack.active("one", 6)
        await serving_under_load(stack, "one")
        lost, faulty = (await members(stack, "one"))[:2]
        stack.impair("dark", "node-down", lost)
        await at_step(stack, "await_nodes")
        before = await statistics(stack)
        stack.impair("npu", "npu-fault", faulty, npu=3, code=RESTART_REQUEST)
        await at_step(stack, "drain_members")
        assert (await drain_of(stack))["nodes"] == [faulty]
        await stack.restart("compute")
        repair = await the_repair(stack)
        assert [(each["node"], each["rung"]) for each in repair["rungs"]] == [(lost, "replace"), (faulty, "restart")]
        heard = await reported(stack, "Drained", "RepairBegun", "NodeReplaced", "Rejoined")
        reasons = [reason for reason, _ in heard]
        assert reasons == ["RepairBegun", "NodeReplaced", "Drained", "RepairBegun", "Rejoined"], heard
        after = await members(stack, "one")
        assert faulty in after
        assert lost not in after
        shown = await statistics(stack)
        assert (shown["requeued"], shown["lost"]) == (before["requeued"], 0), "the restart cut nothing off"
        times = repair["recovery"]
        assert times["fenceS"] + times["tellS"] + times["drainS"] < 10, "of the first that failed"
        assert times["totalS"] == pytest.approx(sum(each for part, each in times.items() if part != "totalS"), abs=0.1)
        await stack.check()


async def test_member_lost_during_a_drain_is_repaired_at_once(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 6)
        await stack.active("one", 6)
        await serving_under_load(stack, "one")
        faulty, lost, later = (await members(stack, "one"))[:3]
        stack.impair("npu", "npu-fault", faulty, npu=3, code=RESTART_REQUEST, endsWith="none")
        await at_step(stack, "drain_members")
        stack.impair("dark", "node-down", lost)
        stack.impair("gone", "node-down", later)
        repair = await the_repair(stack)
        rungs = [(each["node"], each["rung"]) for each in repair["rungs"]]
        assert sorted(rungs) == sorted(
            [(faulty, "restart"), (faulty, "replace"), (lost, "replace"), (later, "replace")]
        ), "each once"
        replaced = [message.split(" ")[0] for _, message in await reported(stack, "NodeReplaced")]
        assert sorted(replaced) == sorted([faulty, lost, later]), "none twice, none left out"
        assert not {faulty, lost, later} & {*await members(stack, "one")}
        for node in (lost, later):
            shown = (await stack.get("resource", f"/v1/nodes/{node}")).json()
            assert shown["cordonedBy"] == ["recovery"], "fenced, whenever it failed"
        await stack.check()
