"""ReplicaSets under virtual time: adoption and release, scaling by its subresource, refusals, leaving with a namespace."""

from __future__ import annotations

from typing import Any

from tests.matrixcontainer.kubeapi.virtual import (
    DEPLOYMENTS,
    NS,
    PODS,
    SETS,
    Cluster,
    a_deployment,
    condition_of,
    in_virtual_time,
    rolled_out,
)

WEB = f"{SETS}/web"


def a_set(replicas: int = 2, **spec: Any) -> dict[str, Any]:
    return a_deployment(replicas=replicas, **spec)


def has_ready(count: int) -> Any:
    return lambda body: body.get("status", {}).get("readyReplicas", 0) == count == body["status"]["replicas"]


def owners(pod: dict[str, Any]) -> list[str]:
    return [owner["name"] for owner in pod["metadata"].get("ownerReferences", [])]


@in_virtual_time
async def test_matching_pods_are_adopted_and_others_released(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(
        PODS,
        {
            "metadata": {"name": "stray", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    )
    await cluster.create(SETS, a_set())
    await cluster.eventually(WEB, has_ready(2))
    assert owners((await cluster.get(f"{PODS}/stray")).body) == ["web"]
    assert len(await cluster.items(PODS)) == 2
    await cluster.patch(f"{PODS}/stray", {"metadata": {"labels": {"app": "other"}}})
    await cluster.eventually(f"{PODS}/stray", lambda b: not owners(b))
    await cluster.eventually(WEB, has_ready(2))
    assert len(await cluster.items(PODS)) == 3
    await cluster.patch(f"{PODS}/stray", {"metadata": {"labels": {"app": "web"}}})
    await cluster.eventually(PODS, lambda b: len(b["items"]) == 2)


@in_virtual_time
async def test_scaling_and_available_replicas(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(SETS, a_set(minReadySeconds=20))
    await cluster.eventually(WEB, has_ready(2))
    assert "availableReplicas" not in (await cluster.get(WEB)).body["status"]
    await cluster.eventually(WEB, lambda b: b["status"].get("availableReplicas") == 2)
    assert 20 <= cluster.now <= 25
    scale = (await cluster.patch(f"{WEB}/scale", {"spec": {"replicas": 4}})).body
    assert scale["spec"]["replicas"] == 4
    assert scale["status"]["selector"] == "app=web"
    await cluster.eventually(WEB, has_ready(4))
    await cluster.patch(f"{WEB}/scale", {"spec": {"replicas": 0}})
    await cluster.eventually(PODS, lambda b: not b["items"])


@in_virtual_time
async def test_a_pod_that_is_deleted_is_replaced(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(SETS, a_set(1))
    await cluster.eventually(WEB, has_ready(1))
    first = (await cluster.items(PODS))[0]["metadata"]["name"]
    await cluster.delete(f"{PODS}/{first}")
    await cluster.eventually(PODS, lambda b: first not in [pod["metadata"]["name"] for pod in b["items"]])
    await cluster.eventually(WEB, has_ready(1))


@in_virtual_time
async def test_a_failed_creation_is_reported_and_retried(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(SETS, a_set(pod={"priorityClassName": "high"}))
    body = await cluster.eventually(WEB, lambda b: condition_of(b, "ReplicaFailure").get("status") == "True")
    assert condition_of(body, "ReplicaFailure")["reason"] == "FailedCreate"
    assert "no PriorityClass with name high" in condition_of(body, "ReplicaFailure")["message"]
    assert await cluster.settle(600) < 60
    await cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
    body = await cluster.eventually(WEB, has_ready(2))
    assert not condition_of(body, "ReplicaFailure")


@in_virtual_time
async def test_a_namespace_with_workloads_is_deleted(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    path = DEPLOYMENTS.replace("default", "team")
    await cluster.create(path, a_deployment())
    await cluster.eventually(f"{path}/web", rolled_out)
    await cluster.delete("/api/v1/namespaces/team")
    await cluster.eventually("/api/v1/namespaces", lambda b: "team" not in [n["metadata"]["name"] for n in b["items"]])
    assert not await cluster.items("/api/v1/pods")
    assert (await cluster.get(NS)).code == 200
