"""An instance whose lost members nobody can replace continues with the others, as long as its floor lets it, and is made
whole when there is room; below its floor it has Failed until then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.small_stack import SmallStack
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def view(stack: Stack, name: str = "one") -> dict[str, Any]:
    return (await stack.get("compute", f"/v1/instances/{name}")).json()


def condition(shown: dict[str, Any], type: str) -> tuple[str, str]:
    found = next(each for each in shown["conditions"] if each["type"] == type)
    return found["status"], found["reason"]


def members(shown: dict[str, Any]) -> list[str]:
    return [each["node"] for each in shown["members"] if each["role"] == "member"]


async def until(stack: Stack, state: str, degraded: str, name: str = "one") -> dict[str, Any]:
    """The instance once it is in that state and its condition Degraded has that reason."""
    shown: list[dict[str, Any]] = []

    async def so() -> bool:
        shown.append(await view(stack, name))
        return (shown[-1]["state"], condition(shown[-1], "Degraded")[1]) == (state, degraded)

    try:
        await stack.until(so, f"{name} is {state}, {degraded}", within_s=1800, every_s=2)
    except AssertionError as late:
        raise AssertionError(f"{late}: {shown[-1]['state']} {shown[-1]['conditions']}") from late
    return shown[-1]


async def events(stack: Stack, *reasons: str) -> list[str]:
    listed = (await stack.get("compute", "/v1/events?filter=instance%3Done&pageSize=500")).json()["items"]
    listed.sort(key=lambda each: int(each["name"].rpartition(".")[2]))
    return [each["reason"] for each in listed if each["reason"] in reasons]


async def operations(stack: Stack, verb: str) -> list[dict[str, Any]]:
    return (await stack.get("compute", f"/v1/operations?filter=verb%3D{verb}")).json()["items"]


async def full(stack: Stack, **spec: Any) -> list[str]:
    """`one` of four nodes beside `rest`, which has all others; its members."""
    await stack.apply("one", 4, **spec)
    await stack.active("one", 4)
    await stack.apply("rest", 8)
    await stack.active("rest", 8)
    return members(await view(stack))


async def test_it_continues_without_who_is_lost_and_has_him_back_when_there_is_room(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack, minNodes=3)
        stack.impair("dark", "node-down", before[1])
        shown = await until(stack, "Active", "MembersMissing")
        assert (shown["nodes"], shown["minNodes"], shown["readyNodes"], shown["repairs"]) == (4, 3, 3, 1)
        assert sorted(members(shown)) == sorted({*before} - {before[1]})
        assert condition(shown, "Ready")[0] == "True"
        assert condition(shown, "NodesReady") == ("False", "MembersMissing")
        for each in (await stack.get("link", "/v1/slices")).json()["items"]:
            if each["instance"] == "one":
                assert sorted(each["members"]) == sorted(members(shown))
        (repair,) = await operations(stack, "replace-node")
        assert [each["rung"] for each in repair["rungs"]] == ["replace", "degrade"]
        await stack.check()

        await stack.restart("compute")
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert (shown["readyNodes"], len(members(shown))) == (4, 4)
        assert len(await operations(stack, "restore-members")) == 1
        assert await events(stack, "DegradedShape", "Restoring") == ["DegradedShape", "Restoring"]
        assert shown["repairs"] == 1, "having somebody back is no repair"
        await stack.check()


async def test_below_its_floor_it_has_failed_keeps_what_it_has_and_returns_with_its_nodes(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        stack.impair("dark", "node-down", before[1])
        shown = await until(stack, "Failed", "NodeLost")
        assert condition(shown, "Progressing") == ("False", "BelowFloor")
        assert members(shown) == before, "it keeps its members"
        assert len(await operations(stack, "replace-node")) == 1, "nothing is tried while nothing could help"
        await stack.restart("compute")
        stack.repair("dark")
        shown = await until(stack, "Active", "Whole")
        assert sorted(members(shown)) == sorted(before)
        await stack.check()


async def test_below_its_floor_it_is_repaired_by_itself_when_a_node_comes_free(tmp_path):
    async with SmallStack(tmp_path) as stack:
        before = await full(stack)
        stack.impair("dark", "node-down", before[1])
        await until(stack, "Failed", "NodeLost")
        await stack.apply("rest", 7)
        shown = await until(stack, "Active", "Whole")
        assert before[1] not in members(shown)
        assert shown["repairs"] == 1, "one failure, replaced once"
        await stack.check()
