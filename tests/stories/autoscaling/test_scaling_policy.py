"""A scaling policy keeps an instance as large as its work asks for: the whole stack, in emulated time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

GREW = {"AboveTarget", "ScaleUpLimit", "TooManyReplicas"}
POLICY = {
    "scaleTargetRef": {"name": "one"},
    "minReplicas": 4,
    "maxReplicas": 16,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}},
    "predictive": "Off",  # a forecast keeps the headroom of an unforeseen rise for an hour
}


async def offer(stack: Stack, rate: float) -> None:
    load = {"requestsPerSecond": rate, "seed": 7, "inputTokensMax": 8192}
    answer = await stack.http["infer"].put("/v1/deployments/one/load", json=load)
    assert answer.status_code == 200, answer.text


async def put_policy(stack: Stack, name: str = "follow", **more: Any) -> Any:
    return await stack.http["compute"].put(f"/v1/scaling-policies/{name}", json=POLICY | more)


async def policy(stack: Stack, name: str = "follow") -> dict:
    return (await stack.get("compute", f"/v1/scaling-policies/{name}")).json()


async def statistics(stack: Stack) -> dict:
    return (await stack.get("infer", "/v1/deployments/one/statistics")).json()


async def serving(stack: Stack, nodes: int = 4) -> None:
    await stack.apply("one", nodes=nodes)
    await stack.active("one", nodes)
    await stack.http["infer"].put("/v1/deployments/one", json={"instance": "one"})

    async def serves() -> bool:
        return (await stack.get("infer", "/v1/deployments/one")).json()["state"] == "Serving"

    await stack.until(serves, "it serves")


def condition_of(shown: dict, type: str) -> tuple[str, str]:
    found = next(each for each in shown["conditions"] if each["type"] == type)
    return found["status"], found["reason"]


async def nodes_of(stack: Stack) -> int:
    view = await stack.compute.find_instance("one")
    assert view is not None
    return view.nodes


def nothing_lost(shown: dict) -> None:
    assert shown["submitted"] == shown["finished"] + shown["inFlight"], shown
    assert (shown["lost"], shown["cancelled"], shown["requeued"]) == (0, 0, 0)
    assert (shown["load"]["refused"], shown["load"]["skipped"]) == (0, 0)


@pytest.mark.timeout(300)
async def test_scaling_follows_the_load_and_survives_crashes(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack)
        await offer(stack, 9.0)
        assert (await put_policy(stack)).status_code == 200
        assert (await stack.compute.find_instance("one")).scaling_policy == "follow"

        async def measured() -> bool:
            return condition_of(await policy(stack), "ScalingActive") == ("True", "ValidMetricFound")

        await stack.until(measured, "what comes in is measured")
        # What comes is random: 9 requests a second may at another time ask for one node more.
        calm = (await settled_policy(stack))["currentReplicas"] + 1

        await offer(stack, 27.0)
        await stack.until(lambda: more_than(stack, calm), "more nodes are asked for")
        await stack.restart("compute")
        grown = await settled_policy(stack)
        assert grown["currentReplicas"] > calm
        assert GREW & await reasons_of(stack), "it has grown, whatever it has let go of the backlog's nodes since"
        nothing_lost(await statistics(stack))

        await offer(stack, 9.0)

        async def draining() -> bool:
            return "Draining" in [each["reason"] for each in (await policy(stack))["decisions"]]

        await stack.until(draining, "nodes drain")
        await stack.restart("compute")
        await stack.until(lambda: as_few_as(stack, calm), "it has shrunk")
        view = await stack.active("one")
        assert view.nodes <= calm
        await asyncio.sleep(60)
        nothing_lost(await statistics(stack))

        async def nobody_drains() -> bool:
            return (await stack.get("infer", "/v1/deployments/one")).json().get("drain") is None

        await stack.until(nobody_drains, "who drained has left")
        reasons = await reasons_of(stack)
        assert "Changed" in reasons
        assert reasons & GREW, reasons
        await stack.check()


async def reasons_of(stack: Stack) -> set[str]:
    """Of the instance's events."""
    events = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
    return {each["reason"] for each in events}


async def more_than(stack: Stack, nodes: int) -> bool:
    return await nodes_of(stack) > nodes


async def as_few_as(stack: Stack, nodes: int) -> bool:
    return await nodes_of(stack) <= nodes


async def settled_policy(stack: Stack) -> dict:
    """The policy once nothing has changed for two minutes and every node is there."""
    while True:
        before = await nodes_of(stack)
        await stack.active("one")
        await asyncio.sleep(120)
        if await nodes_of(stack) == before:
            return await policy(stack)


async def test_raised_floors_apply_at_once(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        await stack.active("one", 4)
        for least in (5, 6, 7):
            assert (await put_policy(stack, minReplicas=least)).status_code == 200

            async def followed(least: int = least) -> bool:
                return await nodes_of(stack) == least

            assert await stack.until(followed, f"{least} nodes are asked for", every_s=0.05) < 0.5


@pytest.mark.soak
async def test_unavailable_inference_service_prevents_shrinking(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack, 6)
        await put_policy(stack)
        await stack.kill("infer")
        await asyncio.sleep(600)
        shown = await policy(stack)
        assert (shown["currentReplicas"], shown["reason"]) == (6, "ServiceUnavailable")
        assert condition_of(shown, "ScalingActive") == ("False", "ServiceUnavailable")
        await stack.start("infer")


async def test_invalid_policies_and_second_owners_are_refused(tmp_path):
    async with Stack(tmp_path) as stack:
        assert (await put_policy(stack)).status_code == 200
        for change, status, field in (
            ({"minReplicas": 9, "maxReplicas": 8}, 422, "maxReplicas"),
            ({"metrics": [{"type": "Object", "object": {"metric": {"name": "x"}}}]}, 422, "metrics[0].object.target"),
            ({"scaleTargetRef": {"name": "two"}}, 409, "scaleTargetRef.name"),
        ):
            answer = await put_policy(stack, **change)
            assert (answer.status_code, answer.json()["field"]) == (status, field)
            assert (await policy(stack))["maxReplicas"] == 16
        second = await put_policy(stack, "second")
        assert (second.status_code, second.json()["field"]) == (409, "scaleTargetRef.name")
        tried = await stack.http["compute"].put(
            "/v1/scaling-policies/follow?validateOnly=true", json=POLICY | {"maxReplicas": 5}
        )
        assert tried.json()["maxReplicas"] == 5
        assert (await policy(stack))["maxReplicas"] == 16

        async def missing() -> bool:
            return (await policy(stack)).get("reason") == "TargetNotFound"

        await stack.until(missing, "there is nothing to scale yet")
        await stack.apply("one", nodes=2)
        assert (await stack.active("one")).scaling_policy == "follow"
        assert (await stack.http["compute"].delete("/v1/scaling-policies/follow")).status_code == 204
        assert (await stack.compute.find_instance("one")).scaling_policy is None
        assert (await put_policy(stack, "second")).status_code == 200


async def test_refused_size_is_shown_in_the_status(tmp_path):
    """Another has 30 of 48 nodes: the target keeps what it has, is tried again, and the policy says so until it has its
    size."""
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack)
        await stack.apply("other", 30)
        await stack.active("other", 30)
        assert (await put_policy(stack, minReplicas=40, maxReplicas=48)).status_code == 200

        async def able() -> tuple[str, str]:
            return condition_of(await policy(stack), "AbleToScale")

        async def refused() -> bool:
            return (await able())[0] == "False"

        await stack.until(refused, "the policy says that its floor does not fit")
        shown = next(each for each in (await policy(stack))["conditions"] if each["type"] == "AbleToScale")
        assert shown["reason"] == "InsufficientCapacity"
        assert "one has 4 of 40 requested nodes" in shown["message"]
        assert await nodes_of(stack) == 40, "what was asked for stays asked for"

        await put_policy(stack, minReplicas=4, maxReplicas=16)

        async def fits() -> bool:
            return await able() == ("True", "ReadyForNewScale")

        await stack.until(fits, "a floor that fits is no trouble", within_s=3600)
