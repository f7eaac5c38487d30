"""What agents do and find, over HTTP: parts through a loss of power, a part that is missing, dies that fail; and how nodes
return whose process stood still for many leases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import Database
from matrixresource.contract.agents import DesiredPartition
from matrixresource.store.allocation_tables import AssignmentRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base
from tests.stack import Stack

pytestmark = pytest.mark.looptime

NODE, OTHER = "sn0-c03-n2", "sn0-c04-n0"


def tables(stack: Stack) -> ResourceStore:
    database = stack.slots["resource"].database
    assert database is not None
    return ResourceStore(Database(database.sessions, Base.metadata, stack.clock))


def spec(stack: Stack, *parts: DesiredPartition) -> None:
    store = tables(stack)
    with store.transaction() as session:
        row = session.get(AssignmentRow, NODE)
        row.parts, row.generation = [part.wire() for part in parts], row.generation + 1
        store.node(session, NODE).wanted_generation = row.generation


def seen(stack: Stack) -> tuple[dict[str, str], bool]:
    """The parts as the service last saw them, and whether its node answers and has taken up the newest spec."""
    with tables(stack).reading() as session:
        node = tables(stack).node(session, NODE)
        return dict(node.reported_partitions), node.agent == "Connected" and node.in_sync


async def test_components_recover_after_a_power_loss(tmp_path):
    async with Stack(tmp_path) as stack:
        await parts_come_back(stack)


async def parts_come_back(stack: Stack) -> None:
    spec(
        stack,
        DesiredPartition(allocation="a", dies=[0, 1], cpus=1, memory_gib=256),
        DesiredPartition(allocation="b", dies=[4]),
    )

    async def serving() -> bool:
        return seen(stack) == ({"a": "Active", "b": "Active"}, True)

    await stack.until(serving, "both parts are there")
    stack.impair("dark", "node-down", NODE)

    async def lost() -> bool:
        return (await stack.resource.get(f"/v1/nodes/{NODE}"))["agent"] == "Lost"

    await stack.until(lost, "its silence is noticed", within_s=90)
    reported = []
    stack.repair("dark")

    async def preparing() -> bool:
        reported.append(seen(stack))
        return reported[-1] == ({"a": "Preparing", "b": "Preparing"}, True)

    await stack.until(preparing, "both are prepared again", every_s=0.25, within_s=30)
    await stack.restart("agents")
    await stack.restart("resource")
    await stack.until(serving, "both parts are there again")
    spec(stack, DesiredPartition(allocation="b", dies=[4]))

    async def alone() -> bool:
        return seen(stack) == ({"b": "Active"}, True)

    await stack.until(alone, "one is wiped, the other untouched")


async def test_faults_of_components_and_dies_are_detected(tmp_path):
    async with Stack(tmp_path) as stack:
        await parts_and_dies(stack)


async def parts_and_dies(stack: Stack) -> None:
    async def kept_out(node: str) -> str | None:
        return (await stack.resource.get(f"/v1/nodes/{node}")).get("unschedulableReason")

    stack.impair("gone", "missing-part", NODE, part="npu5")

    async def mismatch() -> bool:
        return await kept_out(NODE) == "InventoryMismatch"

    await stack.until(mismatch, "what is missing is noticed", within_s=15)
    found = await stack.resource.get(f"/v1/nodes/{NODE}/inventory")
    assert "NPUs: expected 8, found 7 (missing npu5)" in found["mismatches"]
    for occasion in range(2):
        stack.impair(f"ecc-{occasion}", "npu-fault", OTHER, npu=2, die=1, code="80E39200")

        async def faulty() -> bool:
            return await kept_out(OTHER) == "Unhealthy"

        await stack.until(faulty, "the die's code is noticed", within_s=15)
        stack.repair(f"ecc-{occasion}")

        async def decided(well: bool = occasion == 0) -> bool:
            npu = await found_npu(stack)
            return (not npu["faults"]) if well else [each["active"] for each in npu["faults"]] == [False]

        await stack.until(decided, "that it went is noticed", within_s=15)
    npu = await found_npu(stack)
    assert [(die["die"], die["schedulable"], die.get("level")) for die in npu["dies"]] == [
        (4, True, None),
        (5, False, "ManuallySeparate"),
    ]
    released = (await stack.http["resource"].post(f"/v1/npus/{OTHER}-npu2:release")).json()
    assert released["health"] == "Healthy"
    stack.repair("gone")

    async def repaired() -> bool:
        return await kept_out(NODE) is None and await kept_out(OTHER) is None

    await stack.until(repaired, "both take work again", within_s=15)


async def found_npu(stack: Stack) -> dict[str, Any]:
    return next(
        npu
        for npu in (await stack.resource.get("/v1/npus", {"pageSize": 1000}))["items"]
        if npu["name"] == f"{OTHER}-npu2"
    )


def stand_still(stack: Stack) -> asyncio.Event:
    """No call of the agents' process leaves it any more, until the event."""
    running = asyncio.Event()
    for http in stack.agents_http.values():

        async def send(*args: Any, send: Any = http.send, **more: Any) -> Any:
            await running.wait()
            return await send(*args, **more)

        http.send = send
    return running


async def agents_are(stack: Stack, agent: str) -> None:
    async def all_so() -> bool:
        return {node.agent for node in await stack.resource.nodes()} == {agent}

    await stack.until(all_so, f"every agent is {agent}", within_s=600)


async def test_nodes_survive_a_pause_of_their_agents(tmp_path):
    """They were lost meanwhile; they return without a wipe, a repair or a new life. Free ones are checked first."""
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 12, spares=1)  # more than are repaired of a supernode at once
        before = await stack.active("one", 12)
        generations = {node.name: node.assignment_generation for node in await stack.resource.nodes()}
        lives = {name: stack.fleet.agent("resource", name).epoch for name in stack.fleet.nodes}
        running = stand_still(stack)
        await agents_are(stack, "Lost")
        states = {node.name: node.state for node in await stack.resource.nodes()}
        members = {member.node for member in before.members}
        assert all((states[name] == "Quarantined") == (name not in members) for name in states)
        await asyncio.sleep(600)
        running.set()
        await agents_are(stack, "Connected")
        nodes = await stack.resource.nodes()
        assert {node.state for node in nodes if node.name not in members} == {"Verifying"}
        after = await stack.active("one", 12)
        assert (after.members, after.repairs) == (before.members, 0)
        now = {node.name: node.assignment_generation for node in nodes if node.name in members}
        assert now == {name: generations[name] for name in members}, "nothing was asked of any member"
        free = [NodeName(name) for name in states if name not in members]
        await stack.until(lambda: are(stack, free, "Available"), "they are checked")
        assert not {("Verifying", "Cleaning"), ("Quarantined", "Cleaning")} & stack.node_moves(), "nothing was wiped"
        assert {name: stack.fleet.agent("resource", name).epoch for name in stack.fleet.nodes} == lives
        await stack.check()


async def are(stack: Stack, names: list[NodeName], state: str) -> bool:
    return {node.state for node in await stack.resource.nodes() if node.name in names} == {state}


@pytest.mark.parametrize("kind", ["node-down", "agent-hang"])
async def test_fastest_heartbeat_detects_a_silent_node_within_a_second(tmp_path, kind):
    fastest = {"agents": {"heartbeat": 0.1, "lease": 0.3}, "resource": {"lease_watch": 0.1}}
    async with Stack(tmp_path, from_nothing=True, settings=fastest) as stack:
        stack.impair("one", kind, NODE)

        async def found() -> bool:
            return any(node.agent == "Lost" for node in await stack.resource.nodes(f"name={NODE}"))

        assert await stack.until(found, "lost", within_s=5, every_s=0.05) < 1
