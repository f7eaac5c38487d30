"""Maintenance of one node under an instance: it moves away first, and the node comes back checked."""

from __future__ import annotations

import pytest

from tests.stack import Stack
from tests.stories.maintenance.running import (
    NEW,
    events,
    members,
    node,
    nothing_is_left,
    put,
    show,
    until,
    until_unit,
    verb,
)

pytestmark = pytest.mark.looptime


async def test_firmware_update_moves_the_member_first(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        target = (await members(stack, "one"))[0]
        made = await put(stack, "fw", target={"node": target}, action="Firmware", firmware=NEW, reason="a fix")
        assert (made["state"], made["counts"]["total"]) == ("Scheduled", 1)
        least: list[int] = []

        async def done() -> bool:
            instance = await stack.compute.find_instance("one")
            least.append(instance.ready_nodes)
            return (await show(stack, "fw"))["state"] == "Completed"

        await stack.until(done, "it is over", every_s=6, within_s=1800)
        assert min(least) == 2, "never fewer members than asked for"
        shown = (await show(stack, "fw"))["units"][0]
        assert (shown["state"], shown["firmwareBefore"], shown["firmware"]) == ("Done", "emulated-1", NEW)
        back = await node(stack, target)
        assert (back["state"], back["firmware"], back["cordonedBy"]) == ("Available", NEW, [])
        assert target not in await members(stack, "one")
        heard = await events(stack, "one")
        assert heard.index("MaintenanceScheduled") < heard.index("Draining") < heard.index("Moved")
        instance = await stack.active("one", 2)
        assert instance.repairs == 0
        notice = next(each for each in instance.conditions if each.type == "Maintenance")
        assert notice.status == "False"
        again = await put(stack, "again", target={"node": target}, action="Firmware", firmware=NEW)
        assert again["state"] == "Scheduled"
        assert (await until(stack, "again", "Completed"))["units"][0]["reason"] == "UpToDate"
        await nothing_is_left(stack)
        await stack.check()


async def test_maintenance_survives_a_kill_in_each_phase(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        target = (await members(stack, "one"))[0]
        await put(stack, "fw", target={"node": target}, action="Firmware", firmware=NEW)
        for phase in ("Draining", "InService", "Returning"):
            await until_unit(stack, "fw", phase)
            await stack.restart("compute")
        await until(stack, "fw", "Completed")
        assert (await node(stack, target))["firmware"] == NEW
        await nothing_is_left(stack)
        await stack.check()


@pytest.mark.parametrize("phase", ["Draining", "InService"])
async def test_aborted_maintenance_restores_everything(tmp_path, phase):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        target = (await members(stack, "one"))[0]
        await put(stack, "fw", target={"node": target}, action="Firmware", firmware=NEW)
        await until_unit(stack, "fw", phase)
        assert (await verb(stack, "fw", "abort", 202))["state"] == "Aborting"
        await stack.restart("compute")
        shown = await until(stack, "fw", "Aborted")
        assert shown["units"][0]["state"] == "Skipped"
        assert (await node(stack, target))["firmware"] == "emulated-1"
        instance = await stack.active("one", 2)
        assert instance.repairs == 0
        await nothing_is_left(stack)
        await stack.check()


async def test_spare_is_replaced_before_maintenance(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=1)
        await members(stack, "one")
        instance = await stack.active("one", 2)
        spare = next(each.node for each in instance.members if each.role == "spare")
        await put(stack, "fan", target={"node": spare}, serviceS=30)
        await until(stack, "fan", "Completed")
        instance = await stack.active("one", 2)
        assert instance.repairs == 0
        assert [each.node for each in instance.members if each.role == "spare"] not in ([], [spare])
        await nothing_is_left(stack)
        await stack.check()


async def test_maintenance_moves_a_stopped_member(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        target = (await members(stack, "one"))[0]
        await stack.http["compute"].post("/v1/instances/one:stop")

        async def stopped() -> bool:
            return (await stack.compute.find_instance("one")).state == "Stopped"

        await stack.until(stopped, "it is stopped")
        await put(stack, "fan", target={"node": target}, serviceS=30)
        await until(stack, "fan", "Completed")
        await stack.until(stopped, "it is stopped again")
        assert target not in {each.node for each in (await stack.compute.find_instance("one")).members}
        await nothing_is_left(stack)
        await stack.check()
