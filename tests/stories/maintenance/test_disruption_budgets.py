"""Disruption budgets hold for all maintenances of a supernode together, by their reasons and their timetable."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.small_stack import SmallStack
from tests.stack import Stack
from tests.stories.maintenance.running import NEW, put, show, until, until_unit

pytestmark = pytest.mark.looptime


async def budget(stack: Stack, name: str, status: int = 200, **spec: Any) -> None:
    answer = await stack.http["compute"].put(f"/v1/disruption-budgets/{name}", json=spec)
    assert answer.status_code == status, answer.text


async def under_way(stack: Stack, *names: str) -> int:
    return sum([(await show(stack, name))["counts"]["underWay"] for name in names])


async def test_budget_is_shared_per_reason(tmp_path):
    async with SmallStack(tmp_path) as stack:
        await budget(stack, "firmware", nodes="10%", reasons=["Firmware"], supernode="sn0")  # 2 of 12
        for name, cabinet in (("a", "sn0-c00"), ("b", "sn0-c01")):
            await put(
                stack, name, target={"cabinet": cabinet}, action="Firmware", firmware=NEW, budget={"maxUnavailable": 4}
            )
        most = 0

        async def over() -> bool:
            nonlocal most
            most = max(most, await under_way(stack, "a", "b"))
            shown = [await show(stack, name) for name in ("a", "b")]
            waits = [unit["message"] for each in shown for unit in each["units"] if unit["reason"] == "NoBudget"]
            assert all("disruption budget firmware" in message for message in waits), waits
            return all(each["state"] == "Completed" for each in shown)

        await put(stack, "fan", target={"node": "sn0-c02-n0"}, serviceS=60)
        await until_unit(stack, "fan", "InService")
        refused = await put(stack, "fan", 409, target={"node": "sn0-c02-n0"}, serviceS=90)
        assert refused["field"] == "serviceS", "fields are named as they are written"
        await stack.until(over, "both are done", every_s=3, within_s=7200)
        assert most == 2
        assert (await show(stack, "fan"))["state"] == "Completed"
        await stack.check()


async def test_budget_schedule_blocks_maintenance_until_it_ends(tmp_path):
    async with SmallStack(tmp_path) as stack:
        begins = datetime.fromtimestamp(stack.clock.now(), UTC).replace(second=0, microsecond=0)
        ends_at = begins.timestamp() + 900
        await budget(stack, "busy", nodes="0", schedule=f"{begins.minute} {begins.hour} * * *", durationS=900)
        await put(stack, "fan", target={"node": "sn0-c00-n0"}, serviceS=60)
        shown = await until(stack, "fan", "Running", "NoBudget")
        assert shown["message"].endswith("0 of at most 0 nodes are out by disruption budget busy")
        await stack.restart("compute")
        await until(stack, "fan", "Completed", within_s=3600)
        assert ends_at < stack.clock.now() < ends_at + 600, "as soon as it holds no more"
        await budget(stack, "busy", nodes="0")
        await put(stack, "again", target={"node": "sn0-c00-n0"}, serviceS=60)
        await until(stack, "again", "Running", "NoBudget")
        assert (await stack.http["compute"].delete("/v1/disruption-budgets/busy")).status_code == 204
        await until(stack, "again", "Completed", within_s=600)
        await stack.check()
