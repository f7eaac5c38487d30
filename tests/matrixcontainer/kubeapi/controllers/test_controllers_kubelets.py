"""Emulated kubelets and the scheduler stand-in under virtual time: what they respect and what they leave alone."""

from __future__ import annotations

import asyncio
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from tests.matrixcontainer.kubeapi.virtual import (
    DEPLOYMENTS,
    NS,
    PODS,
    Cluster,
    a_deployment,
    condition_of,
    in_virtual_time,
    rolled_out,
)

BOX = f"{PODS}/box"
RUNNING = "Running"


def a_pod(
    *,
    name: str = "box",
    notes: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
    finalizers: list[str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "name": name,
        "annotations": notes or {},
        "labels": labels or {},
        "finalizers": finalizers or [],
    }
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": "i"} | (container or {})]} | spec}


def phase(wanted: str) -> Any:
    return lambda body: body.get("status", {}).get("phase") == wanted


def ready(body: dict[str, Any]) -> bool:
    return condition_of(body, "Ready").get("status") == "True"


@in_virtual_time
async def test_probe_delays(cluster: Cluster) -> None:
    await cluster.node()
    probe = {"exec": {"command": ["true"]}}
    container = {
        "startupProbe": probe | {"initialDelaySeconds": 10},
        "readinessProbe": probe | {"initialDelaySeconds": 2, "periodSeconds": 5, "successThreshold": 3},
    }
    await cluster.create(PODS, a_pod(container=container))
    await cluster.eventually(BOX, phase(RUNNING))
    began = cluster.now
    await cluster.eventually(BOX, lambda b: b["status"]["containerStatuses"][0]["started"])
    assert 10 <= cluster.now - began <= 13
    body = await cluster.eventually(BOX, ready)
    assert 12 <= cluster.now - began <= 15
    assert body["status"]["podIP"]
    await cluster.patch(BOX, {"metadata": {"annotations": {"kubelet.cloudmatrix.io/ready": "false"}}})
    await cluster.eventually(BOX, lambda b: not ready(b))


@in_virtual_time
async def test_grace_and_finalizers_are_respected(cluster: Cluster) -> None:
    await cluster.node()
    notes = {"kubelet.cloudmatrix.io/stop-seconds": "20"}
    await cluster.create(PODS, a_pod(notes=notes, finalizers=["example.test/hold"]))
    await cluster.eventually(BOX, ready)
    asked = cluster.now
    await cluster.delete(BOX)
    body = await cluster.eventually(BOX, phase("Succeeded"))
    assert 19 <= cluster.now - asked <= 22
    assert body["metadata"]["finalizers"] == ["example.test/hold"]
    await asyncio.sleep(5)
    assert await cluster.settle(600) == 0
    await cluster.patch(BOX, {"metadata": {"finalizers": None}})
    assert (await cluster.get(BOX)).code == 404


@in_virtual_time
async def test_a_pod_that_does_not_stop_is_killed_after_its_grace_period(cluster: Cluster) -> None:
    await cluster.node()
    notes = {"kubelet.cloudmatrix.io/stop-seconds": "500"}
    await cluster.create(PODS, a_pod(notes=notes, terminationGracePeriodSeconds=7))
    await cluster.eventually(BOX, ready)
    asked = cluster.now
    async with cluster.watch(PODS, resourceVersion=str(cluster.api.store.revision)) as stream:
        await cluster.delete(BOX)
        codes = []
        while (event := await stream.event(60)) and event["type"] != "DELETED":
            ended = event["object"]["status"]["containerStatuses"][0]["state"].get("terminated", {})
            codes.append(ended.get("exitCode"))
    assert codes[-1] == 137
    assert 6 <= cluster.now - asked <= 9


@in_virtual_time
async def test_nodes_that_are_not_ready_and_nodes_with_a_real_kubelet(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.node("n2")
    lease = {"metadata": {"name": "n2"}, "spec": {"holderIdentity": "n2", "leaseDurationSeconds": 40}}
    await cluster.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
    await cluster.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    for node in ("n1", "n2"):
        await cluster.create(PODS, a_pod(name=node, nodeName=node))
    await asyncio.sleep(60)
    assert {pod["status"]["phase"] for pod in await cluster.items(PODS)} == {"Pending"}
    await cluster.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await cluster.eventually(f"{PODS}/n1", phase(RUNNING))
    assert (await cluster.get(f"{PODS}/n2")).body["status"]["phase"] == "Pending"


@in_virtual_time
async def test_pods_of_other_schedulers_and_gated_ones_are_left_alone(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(PODS, a_pod(name="npu", schedulerName="matrix-scheduler"))
    await cluster.create(PODS, a_pod(name="gated", schedulingGates=[{"name": "example.test/wait"}]))
    await asyncio.sleep(60)
    pods = {pod["metadata"]["name"]: pod for pod in await cluster.items(PODS)}
    assert "nodeName" not in pods["npu"]["spec"]
    assert "nodeName" not in pods["gated"]["spec"]
    assert {pod["status"]["phase"] for pod in pods.values()} == {"Pending"}


@in_virtual_time
async def test_unschedulable_pods_wait_with_a_reason(cluster: Cluster) -> None:
    await cluster.node("n1", huawei_com__Ascend910="8")
    asks = {"resources": {"limits": {"huawei.com/Ascend910": "8"}}}
    await cluster.create(PODS, a_pod(name="first", container=asks))
    await cluster.eventually(f"{PODS}/first", ready)
    await cluster.create(PODS, a_pod(container=asks))
    body = await cluster.eventually(BOX, lambda b: condition_of(b, "PodScheduled").get("reason") == "Unschedulable")
    assert (
        condition_of(body, "PodScheduled")["message"] == "0/1 nodes are available: 1 Insufficient huawei.com/Ascend910."
    )
    await asyncio.sleep(5)
    assert await cluster.settle(600) == 0
    await cluster.delete(f"{PODS}/first")
    await cluster.eventually(BOX, ready)
    reasons = {event["reason"] for event in await cluster.items(f"{NS}/events")}
    assert "FailedScheduling" in reasons


@in_virtual_time
async def test_crashes_back_off_exponentially(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(PODS, a_pod(container={"command": ["sh", "-c", "sleep 1; exit 2"]}))
    await cluster.eventually(BOX, lambda b: b["status"].get("containerStatuses", [{}])[0].get("restartCount") == 3, 200)
    assert cluster.now >= 10 + 20 + 40
    body = await cluster.eventually(BOX, lambda b: "waiting" in b["status"]["containerStatuses"][0]["state"])
    assert body["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert body["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 2
    previous = await cluster.get(f"{BOX}/log", previous="true")
    assert "ended with exit code 2" in previous.body


@in_virtual_time
async def test_init_containers_come_first_and_the_deadline_ends_all(cluster: Cluster) -> None:
    await cluster.node()
    first = {"name": "first", "image": "i", "command": ["sh", "-c", "echo prepared; sleep 5"]}
    await cluster.create(PODS, a_pod(initContainers=[first], activeDeadlineSeconds=30))
    body = await cluster.eventually(BOX, lambda b: condition_of(b, "Initialized").get("status") == "False")
    assert body["status"]["phase"] == "Pending"
    await cluster.eventually(BOX, ready)
    assert cluster.now >= 5
    assert (await cluster.get(f"{BOX}/log", container="first")).body == "prepared\n"
    assert "container name must be specified" in (await cluster.get(f"{BOX}/log")).body["message"]
    body = await cluster.eventually(BOX, phase("Failed"))
    assert body["status"]["reason"] == "DeadlineExceeded"
    assert 30 <= cluster.now <= 33


@in_virtual_time
async def test_a_restart_after_every_single_write(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    restarts = 0
    while not rolled_out((await cluster.get(f"{DEPLOYMENTS}/web")).body):
        written = asyncio.Event()
        cluster.api.store.listeners.append(lambda change, written=written: written.set())
        await asyncio.wait_for(written.wait(), 60)
        restarts += 1
        await cluster.restart()
    assert restarts >= 5, restarts
    await asyncio.sleep(5)
    assert len(await cluster.items(PODS)) == 2
    assert await cluster.settle(600) == 0


@in_virtual_time
async def test_node_with_the_emulated_annotation_becomes_ready(cluster: Cluster) -> None:
    notes = {
        "kubelet.cloudmatrix.io/emulated": "true",
        "kubelet.cloudmatrix.io/capacity": "cpu=64,huawei.com/Ascend910=8",
    }
    await cluster.create("/api/v1/nodes", {"metadata": {"name": "big", "annotations": notes}})
    body = await cluster.eventually("/api/v1/nodes/big", ready)
    assert body["status"]["allocatable"] == {
        "cpu": "64",
        "memory": "32Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
        "huawei.com/Ascend910": "8",
    }
    await cluster.create(PODS, a_pod(container={"resources": {"limits": {"huawei.com/Ascend910": "8"}}}))
    await cluster.eventually(BOX, ready)
    assert await cluster.settle(600) == 0


@in_virtual_time
async def test_pods_of_deleted_nodes_are_removed(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    await cluster.eventually(f"{DEPLOYMENTS}/web", rolled_out)
    await cluster.node("n2")
    await cluster.delete("/api/v1/nodes/n1")
    await asyncio.sleep(30)
    assert {pod["spec"]["nodeName"] for pod in await cluster.items(PODS)} == {"n1"}
    await cluster.restart()
    await cluster.eventually(PODS, lambda b: {pod["spec"].get("nodeName") for pod in b["items"]} == {"n2"})
    await cluster.eventually(f"{DEPLOYMENTS}/web", rolled_out)


@in_virtual_time
async def test_pods_of_a_lost_node_are_evicted_after_their_toleration(cluster: Cluster) -> None:
    await cluster.node("n1")
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    await cluster.eventually(f"{DEPLOYMENTS}/web", rolled_out)
    await cluster.node("n2")
    lost = cluster.now
    await cluster.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    await cluster.patch("/api/v1/nodes/n1", {"spec": {"taints": [taint]}})
    await asyncio.sleep(200)
    assert {pod["spec"]["nodeName"] for pod in await cluster.items(PODS)} == {"n1"}
    await cluster.eventually(
        f"{DEPLOYMENTS}/web",
        lambda b: rolled_out(b) and b["status"].get("readyReplicas") == 2 and cluster.now > lost + 300,
    )
    pods = await cluster.items(PODS)
    assert (
        sorted((p["spec"]["nodeName"], "deletionTimestamp" in p["metadata"]) for p in pods)
        == [("n1", True)] * 2 + [("n2", False)] * 2
    )
    await cluster.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    await cluster.eventually(PODS, lambda b: {pod["spec"]["nodeName"] for pod in b["items"]} == {"n2"})


@in_virtual_time
async def test_node_conditions_become_taints(cluster: Cluster) -> None:
    def keys(body: Any) -> list[str]:
        return sorted(t["key"].removeprefix("node.kubernetes.io/") for t in body["spec"].get("taints") or [])

    path = "/api/v1/nodes/n1"
    made = await cluster.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    assert keys(made.body) == ["not-ready"]
    for status, wanted in (("True", []), ("Unknown", ["unreachable"]), ("False", ["not-ready"]), ("True", [])):
        await cluster.patch(f"{path}/status", {"status": {"conditions": [{"type": "Ready", "status": status}]}})
        await cluster.eventually(path, lambda body, wanted=wanted: keys(body) == wanted)  # type: ignore[misc]
    await cluster.patch(path, {"spec": {"unschedulable": True}})
    await cluster.eventually(path, lambda body: keys(body) == ["unschedulable"])
    own = {"key": "mine", "effect": "NoSchedule"}
    await cluster.patch(path, {"spec": {"unschedulable": False, "taints": [own]}})
    await cluster.eventually(path, lambda body: keys(body) == ["mine"])
    assert await cluster.settle() == 0


@in_virtual_time
async def test_an_error_in_one_pod_does_not_hold_up_scheduling(cluster: Cluster) -> None:
    async def refuse(resource: Resource, verb: str, new: Any, old: Any, options: Options) -> None:
        if verb == "UPDATE" and resource.storage == "pods" and new["metadata"]["name"] == "first":
            raise errors.forbidden("pods", "", "first", "nobody binds it")

    cluster.api.core.verbs.writer.validating.append(refuse)
    await cluster.create(PODS, a_pod(name="first"))
    await asyncio.sleep(2)
    await cluster.create(PODS, a_pod(name="second"))
    await cluster.node()
    await cluster.eventually(f"{PODS}/second", phase(RUNNING))
    cluster.api.core.verbs.writer.validating.remove(refuse)
    await cluster.eventually(f"{PODS}/first", phase(RUNNING))
