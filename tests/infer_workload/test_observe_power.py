"""The workload feels a loss of power at once; nobody has to tell it, and it tells nobody."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import INFER, INSTANCE
from tests.cluster import Cluster
from tests.stories.test_kubernetes_life import condition, ready


@pytest.mark.looptime
async def test_tokens_stop_when_a_decode_node_loses_power_and_resume_after_the_repair(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 6, "spares": 1})
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        await cluster.settles(INSTANCE, "one", ready(6), "the instance is ready")
        await cluster.settles(INFER, "one", lambda b: condition(b, "Ready") == "True", "the model is served")
        await cluster.http["infer"].put("/v1/deployments/one/load", json={"requestsPerSecond": 5, "seed": 1})

        async def tokens(window_s: float) -> float:
            answer = await cluster.get("infer", "/v1/deployments/one/statistics", params={"windowS": window_s})
            return answer.json()["tokensPerSecond"]

        async def flowing() -> bool:
            return await tokens(10) > 100

        await cluster.until(flowing, "tokens flow", within_s=600)
        roles = (await cluster.get("infer", "/v1/deployments/one")).json()["roles"]
        decode = next(node for node, role in sorted(roles.items()) if role == "decode")
        started = cluster.clock.now()
        cluster.impair("dark", "node-down", decode)

        async def still() -> bool:
            return await tokens(5) < 20  # prefill still makes first tokens; no step of decode ends

        await cluster.until(still, "no tokens come any more", within_s=30)
        node = (await cluster.get("resource", f"/v1/nodes/{decode}")).json()
        assert node["agent"] == "Connected", "the control plane has not found out yet"
        assert cluster.clock.now() - started < 30

        async def again() -> bool:
            await cluster.tick()
            return await tokens(10) > 100

        await cluster.until(again, "tokens flow again after the repair", within_s=1800, every_s=5)
