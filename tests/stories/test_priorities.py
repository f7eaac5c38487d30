"""Who is preempted, whose lease ends, and who has to leave a closed cabinet: MatrixCompute notices and puts it in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from matrixcommon.model.errors import InvalidField
from matrixcompute.contract import InstanceRequest
from tests.stack import Stack

pytestmark = pytest.mark.looptime

URGENT = {"priority": 100, "preemption": "LowerPriority"}
HALF = {"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 150.0}}
"""A floor that two instances cannot both have of one node's links."""


def cabinets(view) -> set[str]:
    return {member.cabinet for member in view.members if member.role == "member"}


def reported(view, type: str):
    return next((c for c in view.conditions if c.type == type), None)


async def reasons(stack: Stack, name: str) -> list[str]:
    found = (await stack.get("compute", "/v1/events", params={"filter": f"about={name}"})).json()["items"]
    return [event["reason"] for event in found]


async def test_preempted_instance_releases_everything_and_returns(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("old", 30, network=HALF)
        await stack.active("old", 30)
        request = InstanceRequest.model_validate({"nodes": 40, "network": HALF, **URGENT})
        plan = await stack.compute.ensure_instance("urgent", request, validate_only=True)
        assert plan.preempts == ["old"]
        assert (await stack.compute.find_instance("old")).state == "Active", "a plan changes nothing"

        await stack.compute.ensure_instance("urgent", request)
        await stack.active("urgent", 40)
        await stack.check()

        async def waits() -> bool:
            view = await stack.compute.find_instance("old")
            return view.state == "Pending" and reported(view, "Scheduled").reason == "InsufficientCapacity"

        await stack.until(waits, "old waits for room")
        view = await stack.compute.find_instance("old")
        assert reported(view, "Preempted").status == "True"
        assert "urgent" in reported(view, "Preempted").message
        assert reported(view, "Ready").status == "False"
        assert {each.instance for each in await stack.link.slices()} == {"urgent"}, "no slice outlives its nodes"
        assert "Preempted" in await reasons(stack, "old")
        assert "Preempting" in await reasons(stack, "urgent")

        await stack.compute.delete_instance("urgent")
        await stack.gone("urgent")
        back = await stack.active("old", 30)
        assert reported(back, "Preempted").status == "False"
        await stack.check()
        await stack.compute.delete_instance("old")
        await stack.gone("old")
        await stack.nothing_left()


@pytest.mark.soak
async def test_preempted_instance_returns_elsewhere_at_once(tmp_path):
    async with Stack(tmp_path) as stack:
        for name, nodes in (("full", 42), ("filler", 2)):
            await stack.apply(name, nodes, priority=200)
            await stack.active(name, nodes)
        await stack.apply("small", 1)
        (home,) = cabinets(await stack.active("small", 1))
        await stack.compute.delete_instance("filler")
        await stack.gone("filler")
        await stack.apply("urgent", 4, placement={"policy": "pack", "required": True}, **URGENT)
        assert cabinets(await stack.active("urgent", 4)) == {home}
        assert home not in cabinets(await stack.active("small", 1))
        assert "Preempted" in await reasons(stack, "small")
        await stack.check()


@pytest.mark.soak
async def test_growing_instance_preempts_others(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("old", 30)
        await stack.active("old", 30)
        await stack.apply("urgent", 10, **URGENT)
        await stack.active("urgent", 10)
        request = InstanceRequest.model_validate({"nodes": 20, **URGENT})
        plan = await stack.compute.ensure_instance("urgent", request, validate_only=True)
        assert plan.preempts == ["old"]
        await stack.compute.ensure_instance("urgent", request)
        await stack.active("urgent", 20)
        assert "Preempting" in await reasons(stack, "urgent")

        async def waits() -> bool:
            return (await stack.compute.find_instance("old")).state == "Pending"

        await stack.until(waits, "old waits for room")
        assert "urgent" in reported(await stack.compute.find_instance("old"), "Preempted").message
        await stack.check()


@pytest.mark.soak
async def test_move_with_a_changed_lease_applies_it_afterwards(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, lease_s=40_000)
        ends = (await stack.active("one", 2)).expires_at
        await stack.apply("one", 2, lease_s=400_000, placement={"policy": "spread"})

        async def moved() -> bool:
            view = await stack.active("one", 2)
            return len(cabinets(view)) == 2 and view.expires_at > ends

        await stack.until(moved, "it has moved, and stays longer")
        assert (await stack.resource.find_allocation("one")).expires_at > ends


async def test_ended_lease_deletes_the_instance_unless_renewed(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("guest", 2, lease_s=300)
        view = await stack.active("guest", 2)
        assert view.expires_at is not None
        answer = await stack.http["compute"].post("/v1/instances/guest:renew", json={"leaseS": 900})
        assert answer.status_code == 202
        assert answer.json()["expiresAt"] > view.expires_at
        took = await stack.until(lambda: absent(stack, "guest"), "its lease has ended", within_s=7200)
        assert took > 600, "the renewed lease was kept"
        assert "LeaseEnded" in await reasons(stack, "guest")
        await stack.nothing_left()


async def test_allocation_lease_does_not_delete_an_instance_without_lease(tmp_path):
    """Its allocation was given one by hand: the instance loses its nodes, and takes others."""
    async with Stack(tmp_path) as stack:
        await stack.apply("stays", 2)
        await stack.active("stays", 2)
        answer = await stack.http["resource"].post("/v1/allocations/stays:renew", json={"leaseS": 60})
        assert answer.status_code == 200

        async def again() -> bool:
            return "Revoked" in await reasons(stack, "stays")

        await stack.until(again, "its nodes were released")
        assert (await stack.active("stays", 2)).expires_at is None
        assert (await stack.resource.find_allocation("stays")).expires_at is None


async def absent(stack: Stack, name: str) -> bool:
    return await stack.compute.find_instance(name) is None


@pytest.mark.soak
async def test_lease_that_ended_during_downtime_is_not_renewed(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("guest", 2, lease_s=600)
        await stack.active("guest", 2)
        await stack.kill("compute")
        await stack.until(lambda: released(stack, "guest"), "MatrixResource took the nodes back")
        await stack.start("compute")
        await stack.gone("guest")
        await stack.nothing_left()


async def released(stack: Stack, name: str) -> bool:
    return await stack.resource.find_allocation(name) is None


async def test_drained_cabinet_empties_as_far_as_there_is_room(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        (home,) = cabinets(await stack.active("one", 4))
        await stack.http["resource"].post(f"/v1/domains/{home}:close?drain=true", json={})

        async def left() -> bool:
            view = await stack.active("one", 4)
            return all(member.cabinet != home for member in view.members)

        await stack.until(left, "it has left")
        assert {"Draining", "Moved"} <= set(await reasons(stack, "one"))

        async def drained() -> bool:
            return (await stack.http["resource"].get(f"/v1/domains/{home}")).json()["state"] == "Drained"

        await stack.until(drained, "it is seen drained", within_s=60)
        await stack.check()
        await stack.http["resource"].post(f"/v1/domains/{home}:open", json={})


@pytest.mark.soak
async def test_members_that_cannot_leave_a_drained_cabinet_are_named(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        (home,) = cabinets(await stack.active("one", 4))
        await stack.apply("rest", 42)
        await stack.active("rest", 42)
        await stack.http["resource"].post(f"/v1/domains/{home}:close?drain=true", json={})

        async def blocked() -> bool:
            return "DrainBlocked" in await reasons(stack, "one")

        await stack.until(blocked, "somebody cannot leave")
        view = await stack.active("one", 4)
        staying = [m.node for m in view.members if m.cabinet == home]
        assert len(staying) == 2, "two nodes were free elsewhere"
        events = (await stack.get("compute", "/v1/events", params={"filter": "about=one"})).json()["items"]
        last = [event["message"] for event in events if event["reason"] == "DrainBlocked"][-1]
        assert all(node in last for node in staying)
        await stack.compute.delete_instance("rest")
        await stack.gone("rest")

        async def left() -> bool:
            return home not in cabinets(await stack.active("one", 4))

        await stack.until(left, "there is room now")
        await stack.check()


async def test_sharing_example_becomes_active(tmp_path):
    async with Stack(tmp_path) as stack:
        there = {}
        for body in yaml.safe_load_all((Path(__file__).parents[2] / "examples" / "sharing.yaml").read_text()):
            name = body["metadata"]["name"]
            await stack.compute.ensure_instance(name, InstanceRequest.model_validate(body["spec"]))
            there[name] = await stack.active(name, body["spec"]["nodes"])
        assert not cabinets(there["batch"]) & cabinets(there["urgent"])
        per_cabinet = Counter(member.cabinet for member in there["batch"].members)
        assert all(count % 2 == 0 for count in per_cabinet.values())
        await stack.check()


@pytest.mark.soak
async def test_changed_affinity_moves_and_changed_priority_does_not(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("first", 2)
        (home,) = cabinets(await stack.active("first", 2))
        await stack.apply("second", 2)
        assert cabinets(await stack.active("second", 2)) == {home}
        await stack.apply("second", 2, priority=7)
        here = await stack.active("second", 2)
        assert (cabinets(here), here.priority) == ({home}, 7)
        assert (await stack.resource.find_allocation("second")).priority == 7
        await stack.apply("second", 2, priority=7, antiAffinity={"instances": ["first"]})
        assert home not in cabinets(await stack.active("second", 2))
        await stack.apply("second", 2, priority=7, affinity={"instances": ["first"]})
        assert cabinets(await stack.active("second", 2)) == {home}
        await stack.check()
        with pytest.raises(InvalidField, match="affinity of second names second itself") as refused:
            await stack.apply("second", 2, affinity={"instances": ["second"]})
        assert refused.value.field == "affinity.instances"
        nobody = InstanceRequest.model_validate({"nodes": 2, "affinity": {"instances": ["nobody"]}})
        for name in ("second", "third"):
            with pytest.raises(InvalidField) as refused:
                await stack.compute.ensure_instance(name, nobody, validate_only=True)
            assert refused.value.field == "affinity.instances"
