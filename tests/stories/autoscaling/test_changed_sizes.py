"""The sizes of a served model's pools are changed with `kubectl`: it says what it waits for, sends nothing back, and
whoever changes his mind, or a process that ends, meanwhile does not stop it from getting there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcontainer.client.client import INFER
from tests.cluster import Cluster
from tests.stories.test_scale_in import nothing_lost, serving_under_load, statistics

pytestmark = pytest.mark.looptime


async def resize(cluster: Cluster, prefill: int, decode: int) -> None:
    spec = {"prefillNpus": 8 * prefill, "decodeNpus": 8 * decode}
    await cluster.kube.merge(INFER, "one", {"spec": spec}, "default")


def progressing(body: dict[str, Any]) -> dict[str, Any]:
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "Progressing"), {})


def changing(body: dict[str, Any]) -> bool:
    return progressing(body).get("reason") == "RolesChanging"


def has(prefill: int, decode: int):
    def holds(body: dict[str, Any]) -> bool:
        status = body["status"]
        sizes = status["prefillNpus"] // 8, status["decodeNpus"] // 8
        return sizes == (prefill, decode) and progressing(body)["status"] == "False" and status["state"] == "Serving"

    return holds


async def deployment(cluster: Cluster) -> dict[str, Any]:
    return (await cluster.get("infer", "/v1/deployments/one")).json()


async def test_roles_change_once_drained(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        before = (await deployment(cluster))["roles"]
        assert sorted(before.values()).count("prefill") == 4
        await resize(cluster, 6, 4)
        waiting = await cluster.settles(INFER, "one", changing, "it says that roles change")
        assert "waiting for requests" in progressing(waiting)["message"]
        view = await deployment(cluster)
        assert view["roles"] == before, "nobody has changed its role yet"
        assert view["roleChange"]["requests"] > 0
        assert {before[node] for node in view["roleChange"]["nodes"]} == {"decode"}
        await resize(cluster, 2, 8)  # on second thoughts
        await cluster.settles(INFER, "one", has(2, 8), "it has the sizes that were asked for last")
        assert (await deployment(cluster)).get("roleChange") is None
        await asyncio.sleep(60)
        nothing_lost(await statistics(cluster))


async def test_restart_during_a_role_change_uses_the_requested_sizes(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        await resize(cluster, 2, 8)
        await cluster.settles(INFER, "one", changing, "it says that roles change")
        decoded = {node for node, role in (await deployment(cluster))["roles"].items() if role == "decode"}
        await cluster.restart("infer")
        await cluster.settles(INFER, "one", has(2, 8), "it has the sizes that were asked for")
        now = (await deployment(cluster))["roles"]
        assert decoded <= {node for node, role in now.items() if role == "decode"}, "who decoded goes on"
