"""A scaling policy sizes the pools of what is served: the whole stack, in emulated time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.stack import Stack
from tests.stories.autoscaling.test_scaling_policy import (
    nodes_of,
    nothing_lost,
    policy,
    put_policy,
    serving,
    statistics,
)

pytestmark = pytest.mark.looptime


async def offer(stack: Stack, rate: float, tokens: int) -> None:
    load = {"requestsPerSecond": rate, "seed": 7, "inputTokensMax": tokens}
    answer = await stack.http["infer"].put("/v1/deployments/one/load", json=load)
    assert answer.status_code == 200, answer.text


async def deployment(stack: Stack) -> dict[str, Any]:
    return (await stack.get("infer", "/v1/deployments/one")).json()


async def roles(stack: Stack) -> tuple[int, int]:
    plays = list((await deployment(stack))["roles"].values())
    return plays.count("prefill"), plays.count("decode")


async def reasons(stack: Stack) -> set[str]:
    events = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
    return {each["reason"] for each in events}


async def plays(stack: Stack, prefill: int, decode: int) -> bool:
    return await roles(stack) == (prefill, decode)


async def test_shifted_mix_changes_roles_without_allocation(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack, 6)
        assert await roles(stack) == (2, 4)
        await offer(stack, 27.0, 8192)
        assert (await put_policy(stack, minReplicas=6, maxReplicas=6, pools={})).status_code == 200

        async def asked_for() -> bool:
            return (await policy(stack)).get("desiredPools") == {"prefill": 4, "decode": 2}

        await stack.until(asked_for, "long prompts: more nodes are to read")
        await stack.restart("compute")
        await stack.until(lambda: plays(stack, 4, 2), "they do")
        scale = (await deployment(stack))["scale"]
        assert (scale["prefillNodes"], scale["decodeNodes"], scale["by"]) == (4, 2, "scaling-policies/follow")
        nothing_lost(await statistics(stack))

        await offer(stack, 150.0, 128)
        await stack.until(lambda: plays(stack, 2, 4), "short prompts, and many: more nodes are to answer")
        await asyncio.sleep(60)
        nothing_lost(await statistics(stack))
        shown = await policy(stack)
        assert (shown["desiredReplicas"], shown["desiredPools"]) == (6, {"prefill": 2, "decode": 4})
        assert await nodes_of(stack) == 6
        happened = await reasons(stack)
        assert "RolesRebalanced" in happened
        assert "Changed" not in happened, "nothing was allocated"
        await stack.check()

        await stack.http["compute"].delete("/v1/scaling-policies/follow")

        async def by_its_spec() -> bool:
            return (await deployment(stack)).get("scale") is None

        await stack.until(by_its_spec, "the pools are as the deployment says again")


async def test_busier_pool_gets_nodes_and_returns_them_drained(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack, 4)
        await offer(stack, 27.0, 8192)
        assert (await put_policy(stack, minReplicas=4, maxReplicas=12, pools={"caching": {}})).status_code == 200

        async def more_read() -> bool:
            prefill, decode = await roles(stack)
            return prefill >= 4 and decode == 2 and prefill + decode == await nodes_of(stack)

        await stack.until(more_read, "more instances read, and as many nodes answer as before")
        nothing_lost(await statistics(stack))
        await offer(stack, 3.0, 2048)

        async def smaller() -> bool:
            return await nodes_of(stack) == 4

        await stack.until(smaller, "it is given back")
        await stack.active("one", 4)
        await stack.until(lambda: plays(stack, 2, 2), "the pools are as they were")
        nothing_lost(await statistics(stack))
        assert (await policy(stack))["desiredPools"]["caching"] <= 4
        assert {"Changed"} <= await reasons(stack)
        await stack.check()


async def complete(stack: Stack, **more: Any) -> Any:
    body = {"model": "one", "prompt": "what waits is served", "max_tokens": 16} | more
    return await stack.http["infer"].post("/v1/completions", json=body, timeout=None)


async def state_of(stack: Stack) -> str:
    view = await stack.compute.find_instance("one")
    return "" if view is None else view.state


async def at(stack: Stack, state: str) -> bool:
    return await state_of(stack) == state


async def free_nodes(stack: Stack) -> int:
    found = (await stack.get("resource", "/v1/nodes?pageSize=500")).json()["items"]
    return sum(each.get("allocation") is None for each in found)


@pytest.mark.parametrize("dies", ["nobody", "compute", pytest.param("infer", marks=pytest.mark.soak)])
async def test_scale_to_zero_releases_nodes_and_a_request_restores_them(tmp_path, dies):
    async with Stack(tmp_path, infer=True) as stack:
        everything = await free_nodes(stack)
        await serving(stack, 4)
        given = {"minReplicas": 0, "maxReplicas": 8, "cooldownPeriod": 120}
        if dies != "infer":
            given["pools"] = {}
        assert (await put_policy(stack, **given)).status_code == 200

        async def decided() -> bool:
            return (await policy(stack)).get("reason") == "ScaleTargetDeactivated"

        await stack.until(decided, "nothing has come in for the cooldown period")
        if dies != "nobody":
            await stack.restart(dies)
        await stack.until(lambda: at(stack, "Suspended"), "it is suspended")
        assert await free_nodes(stack) == everything
        assert (await deployment(stack))["state"] == "Idle"
        shown = await policy(stack)
        assert (shown["currentReplicas"], shown["desiredReplicas"]) == (0, 0)
        await stack.check()
        await asyncio.sleep(300)
        assert await state_of(stack) == "Suspended"

        waiting = [asyncio.ensure_future(complete(stack)) for _ in range(3)]

        async def activated() -> bool:
            return (await policy(stack)).get("reason") == "ScaleTargetActivated"

        await stack.until(activated, "requests wait")
        if dies == "compute":
            await stack.restart("compute")
        answers = await asyncio.gather(*waiting)
        assert [each.status_code for each in answers] == [200, 200, 200], [each.text for each in answers]
        await stack.active("one")
        assert {"ScaleTargetDeactivated", "ScaleTargetActivated", "Suspended"} <= await reasons(stack)
        seen = await statistics(stack)
        assert (seen["finished"], seen["lost"], seen["activationQueue"]) == (3, 0, 0)
        await stack.check()


async def test_activation_queue_is_bounded_and_has_a_deadline(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack, 4)
        shape = {"instance": "one", "activationQueueMax": 1, "activationTimeoutS": 5.0}
        await stack.http["infer"].put("/v1/deployments/one", json=shape)
        zero = {"prefillNodes": 0, "decodeNodes": 0}
        answer = await stack.http["infer"].put("/v1/deployments/one/scale", json=zero)
        assert (answer.status_code, answer.json()["state"]) == (200, "Idle")
        first = asyncio.ensure_future(complete(stack))
        await asyncio.sleep(1)
        full = await complete(stack)
        assert (full.status_code, int(full.headers["Retry-After"]) > 0) == (503, True)
        late = await first
        assert (late.status_code, int(late.headers["Retry-After"]) > 0) == (503, True)
        assert "5 s" in late.json()["error"]["message"]

        last = asyncio.ensure_future(complete(stack))
        await asyncio.sleep(1)
        await stack.http["infer"].delete("/v1/deployments/one")
        assert (await last).status_code == 503


async def test_busy_deployment_is_not_scaled_to_zero_and_invalid_sizes_are_refused(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await serving(stack, 4)
        waiting = asyncio.ensure_future(complete(stack, max_tokens=2000, ignore_eos=True))
        await asyncio.sleep(2)
        path = "/v1/deployments/one/scale"
        for body, status, field in (
            ({"prefillNodes": 0, "decodeNodes": 0}, 409, "prefillNodes"),
            ({"prefillNodes": 2, "decodeNodes": 0}, 422, "decodeNodes"),
            ({"prefillNodes": 2, "decodeNodes": 2, "cachingNodes": 5}, 422, "cachingNodes"),
        ):
            answer = await stack.http["infer"].put(path, json=body)
            assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
            assert (await deployment(stack)).get("scale") is None
        assert (await waiting).status_code == 200
        for change, field in (
            ({"pools": {"prefill": {"minReplicas": 4, "maxReplicas": 2}}}, "pools.prefill.maxReplicas"),
            ({"pools": {"prefill": {"minReplicas": 12}, "decode": {"minReplicas": 6}}}, "pools"),
            ({"pools": {"prefill": {"maxReplicas": 1}, "decode": {"maxReplicas": 2}}}, "pools"),
            ({"minReplicas": -1}, "minReplicas"),
            ({"cooldownPeriod": -1}, "cooldownPeriod"),
        ):
            answer = await put_policy(stack, **change)
            assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
        assert (await stack.get("compute", "/v1/scaling-policies/follow")).status_code == 404


@pytest.mark.parametrize("how", ["brought back", "made again"])
async def test_target_restored_by_hand_is_sized_normally(tmp_path, how):
    async with Stack(tmp_path, infer=True) as stack:
        everything = await free_nodes(stack)
        await serving(stack, 4)
        assert (await put_policy(stack, minReplicas=0, maxReplicas=8, cooldownPeriod=240)).status_code == 200
        await stack.until(lambda: at(stack, "Suspended"), "it is scaled to zero", within_s=7200)
        if how == "made again":
            await stack.compute.delete_instance("one")
            await stack.gone("one")
        await stack.apply("one", 4)
        await stack.active("one", 4)

        async def counted() -> bool:
            shown = await policy(stack)
            return shown["currentReplicas"] == 4 and (await deployment(stack)).get("scale") is None

        await stack.until(counted, "its policy knows that it is there", within_s=120)
        await stack.until(lambda: at(stack, "Suspended"), "nothing came in: it is scaled to zero again", within_s=7200)
        assert await free_nodes(stack) == everything
        await stack.check()
