"""Pods wait for the ConfigMaps and Secrets that they refer to, say which, and start once they exist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcontainer.kubeapi.kubelet.pod_references import missing_references
from tests.matrixcontainer.kubeapi.controllers.test_controllers_kubelets import BOX, a_pod, phase, ready
from tests.matrixcontainer.kubeapi.virtual import NS, PODS, Cluster, in_virtual_time

EXISTING = {("configmaps", "app"): {"data": {"a": "1"}, "binaryData": {"b": "MQ=="}}, ("secrets", "app"): {"data": {}}}


def variable(kind: str, **reference: Any) -> dict[str, Any]:
    return {"env": [{"name": "PLAIN", "value": "x"}, {"name": "A", "valueFrom": {kind: reference}}]}


@pytest.mark.parametrize(
    ("container", "missing"),
    [
        ({}, ""),
        (variable("fieldRef", fieldPath="metadata.name"), ""),
        (variable("configMapKeyRef", name="app", key="a"), ""),
        (variable("configMapKeyRef", name="app", key="b"), ""),
        (variable("configMapKeyRef", name="app", key="c"), "couldn't find key c in ConfigMap ns/app"),
        (variable("configMapKeyRef", name="app", key="c", optional=True), ""),
        (variable("configMapKeyRef", name="ap", key="a"), 'configmap "ap" not found'),
        (variable("secretKeyRef", name="app", key="a"), "couldn't find key a in Secret ns/app"),
        (variable("secretKeyRef", name="ap", key="a"), 'secret "ap" not found'),
        ({"envFrom": [{"configMapRef": {"name": "app"}}, {"secretRef": {"name": "app"}}]}, ""),
        ({"envFrom": [{"secretRef": {"name": "ap"}}]}, 'secret "ap" not found'),
        ({"envFrom": [{"configMapRef": {"name": "ap", "optional": True}}]}, ""),
    ],
)
def test_references_of_an_environment(container: dict[str, Any], missing: str) -> None:
    pod = a_pod(container=container)
    pod["metadata"]["namespace"] = "ns"
    found = missing_references(pod, lambda storage, name: EXISTING.get((storage, name)))
    assert (found.volumes, found.by_container) == ("", {"c": missing} if missing else {})


@pytest.mark.parametrize(
    ("volume", "missing"),
    [
        ({"emptyDir": {}}, ""),
        ({"configMap": {"name": "app"}}, ""),
        ({"configMap": {"name": "app", "items": [{"key": "c", "path": "c"}]}}, "couldn't find key c in ConfigMap ns/app"),
        ({"secret": {"secretName": "app"}}, ""),
        ({"secret": {"secretName": "ap"}}, 'secret "ap" not found'),
        ({"secret": {"secretName": "ap", "optional": True}}, ""),
        ({"projected": {"sources": [{"configMap": {"name": "app"}}, {"secret": {"name": "ap"}}]}}, 'secret "ap" not found'),
    ],
)  # fmt: skip
def test_references_of_a_volume(volume: dict[str, Any], missing: str) -> None:
    pod = a_pod(volumes=[{"name": "v"} | volume])
    pod["metadata"]["namespace"] = "ns"
    found = missing_references(pod, lambda storage, name: EXISTING.get((storage, name)))
    assert found.volumes == (missing and f'MountVolume.SetUp failed for volume "v" : {missing}')


async def messages(cluster: Cluster, reason: str) -> list[str]:
    return [each["message"] for each in await cluster.items(f"{NS}/events") if each["reason"] == reason]


@in_virtual_time
async def test_a_container_waits_for_its_environment(cluster: Cluster) -> None:
    await cluster.node()
    needs = [
        {"name": "main", "image": "i"} | variable("secretKeyRef", name="token", key="t"),
        {"name": "side", "image": "i"},
    ]
    pod = a_pod()
    pod["spec"]["containers"] = needs
    await cluster.create(PODS, pod)

    def is_waiting(body: dict[str, Any]) -> bool:
        states = {each["name"]: each["state"] for each in body.get("status", {}).get("containerStatuses", [])}
        wanted = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
        return states.get("main", {}).get("waiting") == wanted and "running" in states["side"]

    await cluster.eventually(BOX, is_waiting)
    assert await messages(cluster, "Failed") == ['Error: secret "token" not found']
    assert await cluster.settle(600) == 0, "it waits for the Secret, and polls nothing"
    await cluster.create(f"{NS}/secrets", {"metadata": {"name": "token"}, "stringData": {"other": "x"}})
    await cluster.eventually(BOX, lambda b: "couldn't find key t in Secret default/token" in str(b["status"]))
    await cluster.patch(f"{NS}/secrets/token", {"stringData": {"t": "x"}})
    await cluster.eventually(BOX, ready)


@in_virtual_time
async def test_a_pod_waits_for_its_volumes_also_after_a_restart(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(PODS, a_pod(volumes=[{"name": "conf", "configMap": {"name": "app"}}]))
    await asyncio.sleep(60)
    body = (await cluster.get(BOX)).body
    assert (body["status"]["phase"], "podIP" in body["status"]) == ("Pending", False)
    assert body["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert await messages(cluster, "FailedMount") == [
        'MountVolume.SetUp failed for volume "conf" : configmap "app" not found'
    ]
    await cluster.restart()
    await cluster.create(f"{NS}/configmaps", {"metadata": {"name": "app"}, "data": {}})
    await cluster.eventually(BOX, ready)
    await cluster.delete(f"{NS}/configmaps/app")
    await asyncio.sleep(60)
    assert ready((await cluster.get(BOX)).body), "what runs keeps running"


@in_virtual_time
async def test_a_waiting_pod_can_be_deleted(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(PODS, a_pod(volumes=[{"name": "conf", "configMap": {"name": "app"}}]))
    await cluster.eventually(BOX, phase("Pending"))
    await asyncio.sleep(60)
    await cluster.delete(BOX)
    await asyncio.sleep(60)
    assert (await cluster.get(BOX)).code == 404
