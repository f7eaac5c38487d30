"""Maintenance of a switch: MatrixLink leads routes around it first, and nobody's floor breaks."""

from __future__ import annotations

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import events, put, until, until_unit, verb

pytestmark = pytest.mark.looptime

CHIP = "sn0-l2p4-k11"


async def drains(stack: Stack) -> list[dict]:
    return (await stack.get("link", "/v1/drains")).json()["items"]


async def test_switch_is_drained_serviced_and_restored(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        spec = {"target": {"switch": CHIP}, "serviceS": 120, "reason": "a fan"}
        made = await put(stack, "fan", **spec)
        assert made["instances"] == ["one"]
        await until_unit(stack, "fan", "InService")
        drain = (await drains(stack))[0]
        assert (drain["name"], drain["state"], drain["elements"]) == ("maintenance-fan", "Drained", [CHIP])
        assert drain["reason"] == "maintenance fan: a fan"
        notice = next(each for each in (await stack.active("one")).conditions if each.type == "Maintenance")
        assert notice.message == f"maintenance fan of switch {CHIP} (a fan), from now on: routes go around it"
        await stack.restart("compute")
        await until(stack, "fan", "Completed")
        assert await drains(stack) == []
        assert "MaintenanceScheduled" in await events(stack, "one")
        await put(stack, "long", target={"switch": CHIP})
        await until_unit(stack, "long", "InService")
        await verb(stack, "long", "abort", 202)
        await until(stack, "long", "Aborted")
        assert await drains(stack) == []
        await stack.check()
