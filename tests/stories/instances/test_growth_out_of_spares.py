"""An instance that grows takes its own spares first, on the whole stack in virtual time: it is larger before a free
node has booted, and has new spares afterwards, whoever dies on the way."""

from __future__ import annotations

import asyncio

import pytest

from matrixcompute.contract import InstanceView
from tests.stack import Stack

pytestmark = pytest.mark.looptime


def named(view: InstanceView, role: str) -> set[str]:
    return {member.node for member in view.members if member.role == role}


def spares_ready(view: InstanceView) -> bool:
    return any(each.type == "SparesAvailable" and each.status == "True" for each in view.conditions)


async def committed(stack: Stack) -> list[str]:
    """What was said of the nodes that it got."""
    events = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
    return [each["message"] for each in events if each["reason"] == "Scheduled"]


async def with_spares(stack: Stack, nodes: int, spares: int) -> InstanceView:
    seen: list[InstanceView] = []

    async def ready() -> bool:
        view = await stack.compute.find_instance("one")
        assert view is not None
        seen.append(view)
        return spares_ready(view)

    await stack.active("one", nodes)
    await stack.until(ready, f"{spares} spares stand ready")
    return seen[-1]


async def test_growth_promotes_spares_and_replenishes_them(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=2)
        before = await with_spares(stack, 2, 2)
        await stack.apply("one", 4, spares=2)
        grown = await stack.active("one", 4)
        assert named(grown, "member") == named(before, "member") | named(before, "spare")
        assert len(named(grown, "spare")) == 2
        assert not spares_ready(grown), "the new ones have yet to boot"
        messages = await committed(stack)
        assert any("2 of 2 new members were spares" in each for each in messages), messages
        await stack.check()
        after = await with_spares(stack, 4, 2)
        assert named(after, "member") == named(grown, "member")
        await stack.apply("one", 7, spares=2)
        await stack.active("one", 7)
        messages = await committed(stack)
        assert any("2 of 3 new members were spares" in each for each in messages), messages
        await stack.apply("one", 1)
        await stack.active("one", 1)
        await stack.check()


async def test_member_that_fails_during_growth_is_replaced(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3, spares=1)
        before = await with_spares(stack, 3, 1)
        (lost,) = named(before, "spare")
        await stack.apply("one", 4, spares=1)
        stack.impair("f", "node-down", lost)

        async def replaced() -> bool:
            now = await stack.compute.find_instance("one")
            return now is not None and lost not in named(now, "member") | named(now, "spare") and now.ready_nodes == 4

        await stack.until(replaced, "the promoted spare that died is replaced", within_s=1800)
        view = await with_spares(stack, 4, 1)
        assert len(named(view, "member")) == 4
        await stack.check()


@pytest.mark.parametrize("service", ["resource", "compute", "link"])
async def test_growth_survives_a_crash(tmp_path, service):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2, spares=2)
        before = await with_spares(stack, 2, 2)
        await stack.apply("one", 5, spares=2)
        await asyncio.sleep(1)
        await stack.kill(service)
        await asyncio.sleep(5)
        await stack.start(service)
        after = await with_spares(stack, 5, 2)
        assert named(before, "member") | named(before, "spare") <= named(after, "member")
        await stack.check()
        assert not await stack.compute.delete_instance("one")
        await stack.gone("one")
        await stack.nothing_left()
