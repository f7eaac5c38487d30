"""An instance shrinks while its workload serves: who leaves is drained first, and no request is lost or sent back."""

from __future__ import annotations

import asyncio

import pytest

from matrixcontainer.client.client import EVENT, INFER, INSTANCE
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime

LOAD = {"requestsPerSecond": 12.0, "seed": 5, "inputTokensMax": 8192}


async def statistics(cluster: Cluster) -> dict:
    return (await cluster.get("infer", "/v1/deployments/one/statistics")).json()


async def drain_of(cluster: Cluster) -> dict:
    return (await cluster.get("infer", "/v1/deployments/one")).json().get("drain") or {}


async def members(cluster: Cluster) -> set[str]:
    view = await cluster.compute.find_instance("one")
    assert view is not None
    return {member.node for member in view.members if member.role == "member"}


async def serving_under_load(cluster: Cluster, nodes: int) -> None:
    await cluster.apply_resource(INSTANCE, "one", {"nodes": nodes})
    await cluster.apply_resource(INFER, "one", {"instance": "one"})
    await cluster.settles(INFER, "one", lambda b: (b.get("status") or {}).get("state") == "Serving", "it serves")
    answer = await cluster.http["infer"].put("/v1/deployments/one/load", json=LOAD)
    assert answer.status_code == 200, answer.text
    await asyncio.sleep(120)
    assert (await statistics(cluster))["decoding"] > 20


async def scale(cluster: Cluster, nodes: int) -> None:
    await cluster.kube.merge(INSTANCE, "one", {"spec": {"nodes": nodes}}, "default")


def shrunk(nodes: int):
    def holds(body: dict) -> bool:
        status = body["status"]
        followed = status["observedGeneration"] == body["metadata"]["generation"]
        return status["state"] == "Active" and status["readyNodes"] == nodes and followed

    return holds


def nothing_lost(statistics: dict) -> None:
    assert statistics["submitted"] == statistics["finished"] + statistics["inFlight"], statistics
    assert (statistics["lost"], statistics["cancelled"], statistics["requeued"]) == (0, 0, 0)
    assert (statistics["load"]["refused"], statistics["load"]["skipped"]) == (0, 0)


async def test_nodes_are_released_only_after_their_drain(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        before = await members(cluster)
        await scale(cluster, 6)
        waiting = await cluster.settles(INSTANCE, "one", lambda b: "drain" in progress(b), "it says that nodes drain")
        assert waiting["status"]["state"] == "Active"
        drain = await drain_of(cluster)
        assert (len(drain["nodes"]), drain["state"]) == (4, "Draining")
        assert drain["requests"] > 0
        assert drain["by"] == "cloudmatrixinstances/one"
        while (await drain_of(cluster)).get("state") == "Draining":
            assert await members(cluster) == before, "a node left while something ran there"
            await cluster.tick()
            await asyncio.sleep(1)
        await cluster.settles(INSTANCE, "one", shrunk(6), "it has shrunk")
        assert await members(cluster) == before - set(drain["nodes"])
        await cluster.settles(INFER, "one", lambda b: b["status"]["pods"] == 6, "pods have followed")
        assert await drain_of(cluster) == {}
        await asyncio.sleep(60)
        nothing_lost(await statistics(cluster))
        events = [each["reason"] for each in (await cluster.kube.list(EVENT))[0]]
        assert (events.count("Draining"), events.count("Drained")) == (1, 1)
        await cluster.check()


def progress(body: dict) -> str:
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((c["message"] for c in conditions if c["type"] == "Progressing"), "")


async def test_reverted_shrink_keeps_every_node(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        before = await members(cluster)
        await scale(cluster, 6)
        await cluster.settles(INSTANCE, "one", lambda b: "drain" in progress(b), "nodes drain")
        await scale(cluster, 10)
        await cluster.settles(INFER, "one", lambda b: b["status"]["pods"] == 10, "they serve again")

        async def withdrawn() -> bool:
            await cluster.tick()
            return await drain_of(cluster) == {}

        await cluster.until(withdrawn, "the drain is withdrawn")
        assert await members(cluster) == before
        nothing_lost(await statistics(cluster))


@pytest.mark.parametrize(
    "victim", ["compute", *(pytest.param(each, marks=pytest.mark.soak) for each in ("resource", "link"))]
)
async def test_crashes_only_delay_a_shrink(tmp_path, victim):
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        before = await members(cluster)
        await scale(cluster, 6)
        leaving: set[str] = set()
        for _ in range(8):
            with_refusals(await asyncio.gather(cluster.tick(), return_exceptions=True))
            leaving |= set((await drain_of(cluster)).get("nodes") or ())
            await cluster.restart(victim)
            await asyncio.sleep(7)
        await cluster.settles(INSTANCE, "one", shrunk(6), "it has shrunk")
        assert await members(cluster) == before - leaving
        assert len(leaving) == 4
        nothing_lost(await statistics(cluster))
        await cluster.check()


def with_refusals(results: list) -> None:
    from matrixcommon.model.errors import MatrixError

    for each in results:
        if isinstance(each, BaseException) and not isinstance(each, MatrixError):
            raise each


@pytest.mark.soak
async def test_drain_survives_a_restart_of_its_process(tmp_path):
    """CloudMatrix-Infer starts again: what it ran is gone with it, what it was asked to leave is not."""
    async with Cluster(tmp_path) as cluster:
        await serving_under_load(cluster, 10)
        await scale(cluster, 6)
        await cluster.settles(INSTANCE, "one", lambda b: "drain" in progress(b), "nodes drain")
        drain = await drain_of(cluster)
        await cluster.restart_inference()
        again = await drain_of(cluster)
        assert (again["nodes"], again["deadlineAt"]) == (drain["nodes"], drain["deadlineAt"])
        await cluster.settles(INSTANCE, "one", shrunk(6), "it has shrunk")
        await cluster.settles(INFER, "one", lambda b: b["status"]["state"] == "Serving", "it serves")
        deployment = (await cluster.get("infer", "/v1/deployments/one")).json()
        assert not set(drain["nodes"]) & deployment["roles"].keys()
        assert deployment.get("drain") is None
        nothing_lost(await statistics(cluster))
