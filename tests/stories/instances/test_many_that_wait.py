"""Many instances for which there is no room: they wait at little cost, and each has its turn once there is some."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from matrixcommon.api.client import list_all
from matrixcompute.model.retries import RETRY_S
from tests.small_stack import SmallStack

pytestmark = pytest.mark.looptime

NODES, WAITING = 12, 30
WATCHED_S = 600.0


async def states(stack: SmallStack) -> Counter[str]:
    return Counter(each.state for each in await stack.compute.instances())


async def tries(stack: SmallStack) -> int:
    """How many workflows have been begun to create an instance."""
    created = await list_all(stack.http["compute"], "/v1/operations", {"filter": "verb=create-instance"})
    return len(created)


async def test_waiting_instances_cost_few_attempts(tmp_path: Path) -> None:
    async with SmallStack(tmp_path) as stack:
        names = [f"i{each:02}" for each in range(NODES + WAITING)]
        await asyncio.gather(*(stack.apply(name, 1) for name in names))
        await stack.apply("all", NODES)

        async def settled() -> bool:
            return await states(stack) == {"Active": NODES, "Pending": WAITING + 1}

        await stack.until(settled, "all nodes are taken, and the others wait")
        before = await tries(stack)
        await asyncio.sleep(WATCHED_S)
        assert await settled()
        asked = await tries(stack) - before
        assert 2 <= asked <= 2 * (WATCHED_S / RETRY_S + 1), "one of each shape asks, as often as one alone would"

        active = [each.name for each in await stack.compute.instances() if each.state == "Active"]
        for name in active[:3]:
            await stack.compute.delete_instance(name)
        await stack.until(lambda: is_so(stack, Active=NODES, Pending=WAITING - 3 + 1), "three have their turn", 300)
        await stack.check()


async def is_so(stack: SmallStack, **wanted: int) -> bool:
    return await states(stack) == wanted
