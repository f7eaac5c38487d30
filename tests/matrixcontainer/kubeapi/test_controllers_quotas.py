"""Quotas under pressure, limits, and what protects claims and marks nodes, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.matrixcontainer.kubeapi.talk import WIDGETS, a_crd, a_widget
from tests.matrixcontainer.kubeapi.virtual import NS, PODS, Cluster, in_virtual_time

QUOTAS, QUOTA = f"{NS}/resourcequotas", f"{NS}/resourcequotas/q"
MAPS, CLAIMS = f"{NS}/configmaps", f"{NS}/persistentvolumeclaims"


async def a_quota(cluster: Cluster, **hard: str) -> None:
    wanted = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    await cluster.made(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": wanted}})
    await cluster.eventually(QUOTA, lambda body: wanted.keys() <= (body["status"].get("used") or {}).keys())


async def used(cluster: Cluster) -> dict[str, str]:
    return (await cluster.get(QUOTA)).body["status"]["used"]  # type: ignore[no-any-return]


def a_map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@in_virtual_time
async def test_a_crowd_does_not_get_past_a_quota(cluster: Cluster) -> None:
    status = len(await cluster.items(MAPS))
    await a_quota(cluster, configmaps=str(status + 5))
    reported = await asyncio.gather(*(cluster.post(MAPS, a_map(f"m{i}")) for i in range(20)))
    assert sorted(one.code for one in reported) == [201] * 5 + [403] * 15
    assert await used(cluster) == {"configmaps": str(status + 5)}
    refusal = next(one for one in reported if one.code == 403)
    assert "exceeded quota: q, requested: configmaps=1, used: configmaps=" in refusal.body["message"]
    gone = next(one.body["metadata"]["name"] for one in reported if one.code == 201)
    await cluster.delete(f"{MAPS}/{gone}")
    await cluster.eventually(QUOTA, lambda body: body["status"]["used"] == {"configmaps": str(status + 4)})
    assert (await cluster.post(MAPS, a_map("late"))).code == 201
    assert await cluster.quiet() == 0


@in_virtual_time
async def test_what_is_charged_and_never_comes_is_given_back(cluster: Cluster) -> None:
    await a_quota(cluster, secrets="3")
    secrets = f"{NS}/secrets"
    assert (await cluster.post(secrets, a_map("a"))).code == 201
    assert (await cluster.post(secrets, a_map("a"))).code == 409
    assert await used(cluster) == {"secrets": "2"}
    await cluster.eventually(QUOTA, lambda body: body["status"]["used"] == {"secrets": "1"})
    assert (await cluster.post(secrets, a_map("b"), dryRun="All")).code == 201
    assert await used(cluster) == {"secrets": "1"}


@in_virtual_time
async def test_custom_resources_are_counted_too(cluster: Cluster) -> None:
    await cluster.define(a_crd())
    await a_quota(cluster, count__widgets_example_test="1")
    assert (await cluster.post(WIDGETS, a_widget("one"))).code == 201
    assert (await cluster.post(WIDGETS, a_widget("two"))).code == 403
    await cluster.delete(f"{WIDGETS}/one")
    await cluster.eventually(QUOTA, lambda body: set(body["status"]["used"].values()) == {"0"})


@in_virtual_time
async def test_an_ended_pod_takes_nothing_and_a_quota_outlives_a_restart(cluster: Cluster) -> None:
    await cluster.node()
    await a_quota(cluster, pods="1", requests_memory="1Gi")
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": "1024Mi"}}}
    await cluster.made(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
    assert await used(cluster) == {"pods": "1", "requests.memory": "1Gi"}
    await cluster.restart()
    assert (await cluster.post(PODS, {"metadata": {"name": "b"}, "spec": {"containers": [container]}})).code == 403
    await cluster.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    await cluster.eventually(QUOTA, lambda body: body["status"]["used"] == {"pods": "0", "requests.memory": "0"})


@in_virtual_time
async def test_a_node_bears_the_taints_of_what_it_says(cluster: Cluster) -> None:
    def keys(body: Any) -> list[str]:
        return sorted(t["key"].removeprefix("node.kubernetes.io/") for t in body["spec"].get("taints") or [])

    path = "/api/v1/nodes/n1"
    made = await cluster.made("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert keys(made.body) == ["not-ready"]
    for status, wanted in (("True", []), ("Unknown", ["unreachable"]), ("False", ["not-ready"]), ("True", [])):
        await cluster.patch(f"{path}/status", {"status": {"conditions": [{"type": "Ready", "status": status}]}})
        await cluster.eventually(path, lambda body, wanted=wanted: keys(body) == wanted)  # type: ignore[misc]
    await cluster.patch(path, {"spec": {"unschedulable": True}})
    await cluster.eventually(path, lambda body: keys(body) == ["unschedulable"])
    own = {"key": "mine", "effect": "NoSchedule"}
    await cluster.patch(path, {"spec": {"unschedulable": False, "taints": [own]}})
    await cluster.eventually(path, lambda body: keys(body) == ["mine"])
    assert await cluster.quiet() == 0
