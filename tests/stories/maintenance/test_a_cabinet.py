"""Maintenance of a cabinet: within its budget, with its words for whoever is in the way, and stopped in the middle."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.model.quantities import timestamp
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

CABINET = "sn0-c03"
FIRMWARE = {"target": {"cabinet": CABINET}, "action": "Firmware", "firmware": NEW}


async def out_at_once(stack: Stack, name: str) -> int:
    units = (await show(stack, name))["units"]
    return sum(each["state"] in ("Draining", "InService", "Returning") for each in units)


async def test_cabinet_maintenance_respects_budget_and_start_time(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 6)
        before = await members(stack, "one")
        cabinet = before[0].rpartition("-")[0]
        begins = stack.clock.now() + 60
        made = await put(
            stack, "fw", **FIRMWARE | {"target": {"cabinet": cabinet}}, notBefore=timestamp(begins), deadline=timestamp(begins + 7200),
            budget={"maxUnavailable": 2},
        )  # fmt: skip
        assert made["instances"] == ["one"]
        await asyncio.sleep(30)
        assert (await show(stack, "fw"))["phaseReason"] == "NotYet"
        instance = await stack.compute.find_instance("one")
        notice = next(each for each in instance.conditions if each.type == "Maintenance")
        assert f"maintenance fw of cabinet {cabinet}, not before {timestamp(begins)}" in notice.message
        assert "MaintenanceScheduled" in await events(stack, "one")
        most, least = 0, 6

        async def over() -> bool:
            nonlocal most, least
            most = max(most, await out_at_once(stack, "fw"))
            least = min(least, (await stack.compute.find_instance("one")).ready_nodes)
            return (await show(stack, "fw"))["state"] == "Completed"

        await stack.until(over, "it is over", every_s=10, within_s=7200)
        assert (most, least) == (2, 6)
        after = await members(stack, "one")
        assert len(set(before) - set(after)) >= 1
        for each in await stack.resource.nodes(f"cabinet={cabinet}"):
            assert each.firmware == NEW
        await nothing_is_left(stack)
        await stack.check()


async def test_bad_firmware_stops_the_rollout(tmp_path):
    async with Stack(tmp_path) as stack:
        bad = f"{CABINET}-n0"
        stack.impair("bad", "stage-failure", bad, stage="write-firmware", why="the image does not verify")
        await put(stack, "fw", **FIRMWARE)
        await until_unit(stack, "fw", "Failed")
        shown = await until(stack, "fw", "Running", "NoBudget")
        await put(stack, "fans", target={"cabinet": "sn0-c05"}, budget={"maxUnavailable": 4})
        await until_unit(stack, "fans", "InService", "sn0-c05-n3")
        refused = await stack.http["resource"].put("/v1/allocations/large", json={"nodes": 44})
        assert refused.json()["detail"].endswith("; 4 nodes are in maintenance fans")
        found = {each["domain"]: each["obstacles"] for each in refused.json()["blocking"]}
        assert found["sn0-c05"] == {"maintenance fans": 4}
        planned = (await stack.http["resource"].post("/v1/plans", json={"nodes": 44})).json()
        assert planned["blocking"][0]["reasons"]["maintenance fans"] == 4
        await verb(stack, "fans", "abort", 202)
        await until(stack, "fans", "Aborted")
        assert f"1 of at most 1 nodes are out: {bad} Servicing" in shown["message"]
        assert {each["state"] for each in shown["units"]} == {"Failed", "Pending"}
        assert (await node(stack, bad))["cordonedBy"] == []
        await put(stack, "fw", **FIRMWARE, budget={"maxUnavailable": 2})
        failed = await until(stack, "fw", "Failed")
        assert (failed["counts"]["done"], failed["counts"]["failed"]) == (3, 1)
        assert f"{bad}: write-firmware: the image does not verify" in failed["message"]
        stack.repair("bad")
        await stack.http["resource"].post(f"/v1/nodes/{bad}:recover", json={})
        await put(stack, "rest", **FIRMWARE)
        assert (await until(stack, "rest", "Completed"))["counts"] == {
            "total": 4, "pending": 0, "underWay": 0, "done": 1, "failed": 0, "skipped": 3,
        }  # fmt: skip
        await nothing_is_left(stack)


async def test_paused_and_aborted_maintenance_restores_everything(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("all", 48)
        await stack.active("all", 48)
        await put(stack, "fw", **FIRMWARE)
        shown = await until(stack, "fw", "Running", "NoRoom")
        assert "cannot leave" in shown["message"]
        assert (await verb(stack, "fw", "pause"))["state"] == "Paused"
        assert (await verb(stack, "fw", "pause"))["state"] == "Paused"
        await stack.restart("compute")
        assert (await verb(stack, "fw", "resume"))["state"] == "Running"
        refused = await stack.http["compute"].delete("/v1/maintenances/fw")
        assert refused.status_code == 409
        assert (await verb(stack, "fw", "abort", 202))["state"] == "Aborting"
        await stack.restart("compute")
        shown = await until(stack, "fw", "Aborted")
        assert {each["state"] for each in shown["units"]} == {"Skipped"}
        await nothing_is_left(stack)
        assert len(await members(stack, "all")) == 48
        assert ":pause" not in (await verb(stack, "fw", "resume", 409))["detail"]
        assert (await stack.http["compute"].delete("/v1/maintenances/fw")).status_code == 204
        await stack.check()


async def test_expired_deadline_stops_the_maintenance(tmp_path):
    async with Stack(tmp_path) as stack:
        await put(stack, "fw", **FIRMWARE, deadline=timestamp(stack.clock.now() + 200))
        shown = await until(stack, "fw", "Expired")
        assert shown["phaseReason"] == "DeadlinePassed"
        states = [each["state"] for each in shown["units"]]
        assert states.count("Done") + states.count("Skipped") == 4
        assert "Skipped" in states
        assert {each["reason"] for each in shown["units"] if each["state"] == "Skipped"} == {"DeadlinePassed"}
        await nothing_is_left(stack)


async def test_immovable_members_are_awaited(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        target = (await members(stack, "one"))[0]
        spec = {"target": {"node": target}, "movable": False, "serviceS": 60}
        await put(stack, "wait", **spec)
        shown = await until(stack, "wait", "Running", "InUse")
        assert shown["units"][0]["state"] == "Cordoned"
        assert (await node(stack, target))["cordonedBy"] == ["maintenance-wait"]
        assert target in await members(stack, "one")
        await stack.compute.delete_instance("one")
        await until(stack, "wait", "Completed")
        await nothing_is_left(stack)


async def test_invalid_input_is_refused_without_changes(tmp_path):
    async with Stack(tmp_path) as stack:
        await put(stack, "fw", **FIRMWARE, notBefore="2100-01-01T00:00:00Z")
        past = timestamp(stack.clock.now() - 1)
        for change, status, field in (
            ({"deadline": past}, 422, "deadline"),
            ({"target": {"cabinet": "sn0-c99"}}, 422, "target.cabinet"),
            ({"target": {"supernode": "sn7"}}, 422, "target.supernode"),
            ({"target": {"cabinet": CABINET, "node": f"{CABINET}-n0"}}, 422, "target"),
            ({"firmware": None}, 422, "firmware"),
            ({"target": {"node": f"{CABINET}-n0"}}, 409, "target"),
            ({"target": {"supernode": "sn0"}}, 409, "target"),
            ({"target": {"switch": "sn0-l2p9-k99"}, "action": "Service", "firmware": None}, 422, "target.switch"),
        ):
            refused = await put(stack, "other", status, **FIRMWARE | change)
            assert refused["field"] == field, refused
        assert "sn0-c03" in (await put(stack, "x", 422, **FIRMWARE | {"target": {"cabinet": "sn0-c99"}}))["detail"]
        await stack.http["resource"].post("/v1/nodes/sn0-c01-n0:retire", json={"force": True})
        await put(stack, "other", 422, **FIRMWARE | {"target": {"node": "sn0-c01-n0"}})
        tried = await stack.http["compute"].put(
            "/v1/maintenances/other?validateOnly=true", json=FIRMWARE | {"target": {"cabinet": "sn0-c05"}}
        )
        assert len(tried.json()["units"]) == 4
        stale = {"If-Match": '"999999"'}
        assert (await stack.http["compute"].post("/v1/maintenances/fw:abort", headers=stale)).status_code == 412
        assert [each["name"] for each in (await stack.get("compute", "/v1/maintenances")).json()["items"]] == ["fw"]
        first = await show(stack, "fw")
        assert (await put(stack, "fw", **FIRMWARE, notBefore="2100-01-01T00:00:00Z"))["etag"] == first["etag"]
        await put(stack, "fw", **FIRMWARE | {"target": {"cabinet": "sn0-c05"}}, notBefore="2100-01-01T00:00:00Z")
        assert (await show(stack, "fw"))["units"][0]["name"] == "sn0-c05-n0", "before it begins all of it may change"
