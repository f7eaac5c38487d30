"""The caches of a served model hold memory of its instance's nodes, through everything that happens to either."""

from __future__ import annotations

import pytest

from matrixcommon.api.client import call
from matrixresource.contract.allocations import DEPLOYMENT_LABEL
from tests.accounting import audit, fetch
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def lent(stack):
    found = [each for each in await stack.resource.allocations() if DEPLOYMENT_LABEL in each.labels]
    return {member.node: member.memory_gib for each in found for member in each.members}


async def served(stack, state="Serving"):
    async def holds():
        view = await call(stack.http["infer"], "GET", "/v1/deployments/chat")
        memory = view.get("cacheMemory")
        return view["state"] == state and memory is not None and set(memory["nodes"]) == set(view["roles"])

    await stack.until(holds, f"chat is {state} and holds memory of its nodes")


async def settled(stack):
    async def nothing_is_broken():
        return not audit(await fetch(stack.http), settled=True)

    await stack.until(nothing_is_broken, "what services show agrees")


async def test_cache_memory_follows_the_nodes_and_is_released(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 4, 1)
        await stack.active("one")
        body = {"instance": "one", "cacheGbPerNode": 100}
        await call(stack.http["infer"], "PUT", "/v1/deployments/chat", body=body)
        await served(stack)
        before = await lent(stack)
        assert len(before) == 4
        await settled(stack)

        await stack.restart("infer")
        await served(stack)
        assert await lent(stack) == before

        lost = sorted(before)[0]
        stack.impair("gone", "node-down", lost)

        async def elsewhere():
            return len(await lent(stack)) == 4 and lost not in await lent(stack)

        await stack.until(elsewhere, "the memory of the node that is lost is given up, its successor lends some")
        await stack.active("one")
        await served(stack)
        await settled(stack)
        await stack.check()

        await stack.kill("infer")
        await stack.compute.delete_instance("one")
        await stack.gone("one")
        assert await lent(stack), "nobody is there to give it back"
        await stack.start("infer")
        await stack.until(stack._nothing_lent, "a deployment without nodes holds nothing")
        stack.repair("gone")
        await stack.nothing_left()
