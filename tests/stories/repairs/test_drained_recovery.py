"""A member that still works is drained before it is repaired where it stands, and one that is dead is not: both with
their times in parts, measured until the workload serves again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import events, members
from tests.stories.repairs.serving import drain_of, nothing_lost, operations, serving_under_load, statistics, step_of

pytestmark = pytest.mark.looptime

RESTART_REQUEST = "80C98000"


async def recovered(stack: Stack, repairs: int) -> dict[str, Any]:
    async def done() -> bool:
        view = await stack.compute.find_instance("one")
        return view is not None and (view.repairs, view.state) == (repairs, "Active")

    await stack.until(done, "it is repaired", within_s=1800, every_s=5)
    return (await operations(stack, "replace-node"))[-1]


async def test_working_member_drains_and_rejoins_and_dead_member_is_skipped(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        await serving_under_load(stack, "one")
        node = (await members(stack, "one"))[0]
        stack.impair("npu", "npu-fault", node, npu=3, code=RESTART_REQUEST)

        async def drains() -> bool:
            return await step_of(stack, "replace-node") == "drain_members"

        await stack.until(drains, "the member drains", within_s=120, every_s=1)
        assert (await drain_of(stack))["nodes"] == [node]
        assert (await operations(stack, "replace-node"))[0]["rungs"] == [], "nothing is begun before"
        repair = await recovered(stack, 1)
        assert [each["rung"] for each in repair["rungs"]] == ["restart"]
        times = repair["recovery"]
        assert times["drainS"] > 5
        assert times["tellS"] < times["drainS"]
        nothing_lost(await statistics(stack))
        shown = (await stack.get("infer", "/v1/deployments/one")).json()
        assert set(await members(stack, "one")) <= {*shown["readyNodes"]}
        assert (shown["state"], shown.get("drain")) == ("Serving", None)
        heard = await events(stack, "one")
        for earlier, later in (("Draining", "Drained"), ("Drained", "RepairBegun"), ("RepairBegun", "Rejoined")):
            assert heard.index(earlier) < heard.index(later)

        stack.impair("again", "npu-fault", node, npu=3, code=RESTART_REQUEST)
        repair = await recovered(stack, 2)
        assert [each["rung"] for each in repair["rungs"]] == ["replace"], "twice in a day is ManuallySeparate"
        assert (await events(stack, "one")).count("Drained") == 2
        assert node not in await members(stack, "one")
        nothing_lost(await statistics(stack))

        node = (await members(stack, "one"))[0]
        stack.impair("dark", "node-down", node)
        repair = await recovered(stack, 3)
        times = repair["recovery"]
        assert times["tellS"] + times["drainS"] < 1
        assert times["serveS"] > 20, "executors start and weights load on the new member"
        shown = (await stack.get("infer", "/v1/deployments/one")).json()
        assert (shown["state"], set(shown["readyNodes"])) == ("Serving", set(await members(stack, "one")))
        asked = (await stack.get("compute", "/v1/events?filter=reason%3DNotDrained")).json()["items"]
        assert [each["message"] for each in asked] == [f"{node}: its agent is Lost, so it cannot finish its work"]
        await stack.check()
