"""The process that plays every node stands still for longer than two leases while the services run, and goes on: all
its nodes were lost meanwhile, and all come back as they were, without a wipe, a repair or a new life."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


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


async def test_nodes_come_back_from_a_pause_of_their_process_as_they_were(tmp_path):
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
        assert {node.state for node in nodes if node.name not in members} == {"Available"}, "at the first report"
        after = await stack.active("one", 12)
        assert (after.members, after.repairs) == (before.members, 0)
        assert {node.name: node.assignment_generation for node in nodes} == generations, "nothing was asked of any node"
        assert {name: stack.fleet.agent("resource", name).epoch for name in stack.fleet.nodes} == lives
        await stack.check()
