"""The degraded shape under load, and under a scaling policy: requests are served on the smaller shape and none is lost; what
recovery took away is scaled by nobody, and comes back once, when there is room."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.small_stack import SmallStack
from tests.stack import Stack
from tests.stories.autoscaling.test_scaling_policy import offer, policy, put_policy, settled_policy
from tests.stories.instances.test_floor import events, members, operations, until, view
from tests.stories.repairs.serving import serving_under_load, statistics

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]

ALL = 12


async def served(stack: Stack) -> dict[str, Any]:
    """The statistics; every request that was accepted has finished, or is on its way."""
    shown = await statistics(stack)
    assert shown["submitted"] == shown["finished"] + shown["inFlight"], shown
    assert (shown["lost"], shown["cancelled"]) == (0, 0), shown
    assert (shown["load"]["refused"], shown["load"]["skipped"]) == (0, 0)
    return shown


async def serves_on(stack: Stack, nodes: list[str]) -> None:
    async def so() -> bool:
        shown = (await stack.get("infer", "/v1/deployments/one")).json()
        return (shown["state"], sorted(shown["readyNodes"])) == ("Serving", sorted(nodes))

    await stack.until(so, f"it serves on {', '.join(nodes)}", within_s=1800, every_s=5)


async def filled(stack: Stack, nodes: int, **spec: Any) -> list[str]:
    """`one` under load beside `rest`, which has all other nodes; its members."""
    await stack.apply("one", nodes, **spec)
    await stack.active("one", nodes)
    await serving_under_load(stack, "one")
    await stack.apply("rest", ALL - nodes)
    await stack.active("rest", ALL - nodes)
    return members(await view(stack))


async def test_degraded_shape_serves_without_losing_requests(tmp_path: Path) -> None:
    async with SmallStack(tmp_path, infer=True) as stack:
        before = await filled(stack, 4, minNodes=3)
        stack.impair("dark", "node-down", before[1])
        shown = await until(stack, "Active", "MembersMissing")
        await serves_on(stack, members(shown))
        count = (await served(stack))["finished"]
        await asyncio.sleep(120)
        assert (await served(stack))["finished"] > count + 100, "three nodes serve what comes in"
        await stack.restart("infer")
        await serves_on(stack, members(shown))

        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        await serves_on(stack, before)
        await asyncio.sleep(60)
        await served(stack)
        await stack.check()


async def test_instance_below_its_floor_serves_once_restored(tmp_path: Path) -> None:
    async with SmallStack(tmp_path, infer=True) as stack:
        before = await filled(stack, 4, minNodes=4)
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Failed", "NodeLost")
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        await serves_on(stack, members(shown))
        await asyncio.sleep(60)
        await served(stack)
        await stack.check()


async def test_policy_ignores_members_removed_by_recovery(tmp_path: Path) -> None:
    async with SmallStack(tmp_path, infer=True) as stack:
        before = await filled(stack, 5, minNodes=4)
        await offer(stack, 9.0)
        assert (await put_policy(stack, minReplicas=5, maxReplicas=8)).status_code == 200
        await settled_policy(stack)
        nodes = (await view(stack))["nodes"]
        assert nodes == 5
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Active", "MembersMissing")
        decided = len((await policy(stack))["decisions"])
        await asyncio.sleep(600)
        shown = await until(stack, "Active", "MembersMissing")
        assert (shown["nodes"], shown["readyNodes"], shown["minNodes"]) == (5, 4, 4)
        changes = [each for each in (await policy(stack))["decisions"][decided:] if each["desiredReplicas"] != 5]
        assert changes == [], "a member that is missing is no reason to scale"
        assert await operations(stack, "scale-instance") == []

        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert (shown["nodes"], shown["readyNodes"], shown["repairs"]) == (5, 5, 1)
        assert await events(stack, "DegradedShape", "Restoring") == ["DegradedShape", "Restoring"]
        await asyncio.sleep(60)
        await served(stack)
        await stack.check()


@pytest.mark.soak
async def test_missing_members_are_restored_before_growth(tmp_path: Path) -> None:
    async with SmallStack(tmp_path, infer=True) as stack:
        before = await filled(stack, 5, minNodes=4)
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Active", "MembersMissing")
        assert (await put_policy(stack, minReplicas=6, maxReplicas=6)).status_code == 200

        async def asked() -> bool:
            return (await view(stack))["nodes"] == 6

        await stack.until(asked, "six are asked for")
        most = 0

        async def whole() -> bool:
            nonlocal most
            shown = await view(stack)
            most = max(most, len(members(shown)))
            return shown["state"] == "Active" and shown["readyNodes"] == 6

        await asyncio.sleep(300)
        assert len(members(await view(stack))) == 4, "there is no room for any"
        await stack.apply("rest", ALL - 6)  # room for one
        await stack.until(lambda: _members(stack, 5), "the missing one is back", within_s=1800)
        stack.repair("dark")  # and for the other
        await stack.until(whole, "it is as large as the policy asks", within_s=3600, every_s=2)
        assert most == 6
        assert (await view(stack))["nodes"] == 6
        assert len(await operations(stack, "restore-members")) == 1
        await serves_on(stack, members(await view(stack)))
        await served(stack)
        await stack.check()


async def _members(stack: Stack, number: int) -> bool:
    shown = await view(stack)
    return len(members(shown)) == number and shown["readyNodes"] == number
