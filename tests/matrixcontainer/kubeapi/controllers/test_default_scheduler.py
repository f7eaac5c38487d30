"""Hard rules about where a pod may go relative to other pods, and resources that another scheduler allocates."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from matrixcontainer.kubeapi.kubelet.node_info import MANAGED_RESOURCES
from tests.matrixcontainer.kubeapi.controllers.test_controllers_kubelets import a_pod
from tests.matrixcontainer.kubeapi.virtual import (
    DEPLOYMENTS,
    PODS,
    Cluster,
    a_deployment,
    condition_of,
    in_virtual_time,
)

WEB = {"matchLabels": {"app": "web"}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def near(kind: str, key: str = "zone", selector: dict[str, Any] | None = None, **term: Any) -> dict[str, Any]:
    """A spec with one required term of podAffinity or podAntiAffinity."""
    terms = [{"topologyKey": key, "labelSelector": WEB if selector is None else selector} | term]
    return {"affinity": {kind: {REQUIRED: terms}}}


def spread(skew: int = 1, key: str = "zone", **constraint: Any) -> dict[str, Any]:
    rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return {"topologySpreadConstraints": [rule | constraint]}


async def zones(cluster: Cluster, **sizes: int) -> dict[str, str]:
    """Zones of so many nodes each; returns the zone of each node."""
    found = {f"{zone}{index}": zone for zone, size in sizes.items() for index in range(size)}
    for node, zone in found.items():
        await cluster.node(node)
        await cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"zone": zone}}})
    return found


async def placed(cluster: Cluster, name: str) -> str:
    """The node of a pod once it has one, or why it has none."""

    def decided(body: dict[str, Any]) -> bool:
        return bool(body["spec"].get("nodeName") or condition_of(body, "PodScheduled").get("message"))

    body = await cluster.eventually(f"{PODS}/{name}", decided)
    return body["spec"].get("nodeName") or condition_of(body, "PodScheduled")["message"]


@in_virtual_time
async def test_a_spread_that_is_required_evens_out_over_all_zones(cluster: Cluster) -> None:
    zone_of = await zones(cluster, a=4, b=1, c=1)
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=7, pod=spread()))
    await cluster.eventually(f"{DEPLOYMENTS}/web", lambda b: b.get("status", {}).get("readyReplicas") == 7)
    counts = Counter(zone_of[pod["spec"]["nodeName"]] for pod in await cluster.items(PODS))
    assert sorted(counts.values()) == [2, 2, 3]


@in_virtual_time
async def test_required_anti_affinity_places_one_per_zone_and_holds_the_others(cluster: Cluster) -> None:
    zone_of = await zones(cluster, a=2, b=2)
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=3, pod=near("podAntiAffinity")))
    await cluster.eventually(f"{DEPLOYMENTS}/web", lambda b: b.get("status", {}).get("readyReplicas") == 2)
    await asyncio.sleep(60)
    pods = await cluster.items(PODS)
    assert sorted(zone_of[pod["spec"]["nodeName"]] for pod in pods if "nodeName" in pod["spec"]) == ["a", "b"]
    (waiting,) = [pod for pod in pods if "nodeName" not in pod["spec"]]
    assert condition_of(waiting, "PodScheduled")["message"] == (
        "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules."
    )
    bound = next(pod for pod in pods if "nodeName" in pod["spec"])
    await cluster.delete(f"{PODS}/{bound['metadata']['name']}")
    await cluster.eventually(f"{PODS}/{waiting['metadata']['name']}", lambda b: b["spec"].get("nodeName"))


@in_virtual_time
async def test_the_anti_affinity_of_a_running_pod_keeps_others_away(cluster: Cluster) -> None:
    await zones(cluster, a=2)
    await cluster.create(PODS, a_pod(name="alone", **near("podAntiAffinity")))
    assert (await placed(cluster, "alone")).startswith("a")
    await cluster.create(PODS, a_pod(labels={"app": "web"}))
    assert await placed(cluster, "box") == (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    )


@in_virtual_time
async def test_a_pod_follows_the_one_it_has_required_affinity_to(cluster: Cluster) -> None:
    zone_of = await zones(cluster, a=1, b=3)
    await cluster.create(PODS, a_pod(**near("podAffinity")))
    assert await placed(cluster, "box") == "0/4 nodes are available: 4 node(s) didn't match pod affinity rules."
    await cluster.create(PODS, a_pod(name="web", labels={"app": "web"}, nodeSelector={"kubernetes.io/hostname": "b2"}))
    body = await cluster.eventually(f"{PODS}/box", lambda b: b["spec"].get("nodeName"))
    assert zone_of[body["spec"]["nodeName"]] == "b"


@in_virtual_time
async def test_the_first_of_a_group_with_affinity_to_itself_is_placed_anywhere(cluster: Cluster) -> None:
    zone_of = await zones(cluster, a=2, b=2)
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=4, pod=near("podAffinity")))
    await cluster.eventually(f"{DEPLOYMENTS}/web", lambda b: b.get("status", {}).get("readyReplicas") == 4)
    assert len({zone_of[pod["spec"]["nodeName"]] for pod in await cluster.items(PODS)}) == 1


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        (near("podAntiAffinity"), {"a", "b"}),  # of its own namespace: the other pod is not
        (near("podAntiAffinity", namespaces=["other"]), {"b"}),
        (near("podAntiAffinity", namespaceSelector={}), {"b"}),
        (near("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "x"}}), {"b"}),
        (near("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "y"}}), {"a", "b"}),
        (near("podAntiAffinity", namespaceSelector={}, matchLabelKeys=["rev"]), {"a", "b"}),
        (near("podAntiAffinity", namespaceSelector={}, mismatchLabelKeys=["rev"]), {"b"}),
        (near("podAntiAffinity", key="rack", namespaceSelector={}), {"a", "b"}),
        (near("podAffinity", namespaceSelector={}), {"a"}),
        (spread(), {"a", "b"}),  # it counts pods of its own namespace
        (spread(key="rack"), set()),
    ],
)
def test_terms_name_namespaces_and_label_keys(spec: dict[str, Any], allowed: set[str]) -> None:
    @in_virtual_time
    async def story(cluster: Cluster) -> None:
        await zones(cluster, a=1, b=1)
        await cluster.post("/api/v1/namespaces", {"metadata": {"name": "other", "labels": {"team": "x"}}})
        web = a_pod(name="web", labels={"app": "web", "rev": "1"}, nodeSelector={"zone": "a"})
        await cluster.create("/api/v1/namespaces/other/pods", web)
        await cluster.eventually("/api/v1/namespaces/other/pods/web", lambda b: b["spec"].get("nodeName"))
        for zone in ("a", "b"):
            pod = a_pod(name=zone, labels={"rev": "2"}, **spec, nodeSelector={"zone": zone})
            await cluster.create(PODS, pod)
            assert (await placed(cluster, zone) == f"{zone}0") == (zone in allowed), zone

    story()


@in_virtual_time
async def test_a_host_port_is_given_once_per_node(cluster: Cluster) -> None:
    await cluster.node("n1")
    port = {"containerPort": 80, "hostPort": 80}
    await cluster.create(PODS, a_pod(name="first", container={"ports": [port]}))
    assert await placed(cluster, "first") == "n1"
    others = {
        "second": port | {"hostIP": "10.0.0.1"},
        "udp": port | {"protocol": "UDP"},
        "no-port": {"containerPort": 80},
    }
    for name, other in others.items():
        await cluster.create(PODS, a_pod(name=name, container={"ports": [other]}))
    assert await placed(cluster, "second") == (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )
    assert [await placed(cluster, name) for name in ("udp", "no-port")] == ["n1", "n1"]


@in_virtual_time
async def test_a_resource_that_another_scheduler_allocates_is_left_to_it(cluster: Cluster) -> None:
    await cluster.node("n1", example_com__gpu="8")
    note = {MANAGED_RESOURCES: "example.com/gpu=gpu-scheduler"}
    await cluster.patch("/api/v1/nodes/n1", {"metadata": {"annotations": note}})
    await cluster.create(PODS, a_pod(container={"resources": {"limits": {"example.com/gpu": "1"}}}))
    assert await placed(cluster, "box") == (
        "0/1 nodes are available: 1 node(s) had example.com/gpu allocated by another scheduler: "
        "set spec.schedulerName to gpu-scheduler."
    )
    await cluster.create(PODS, a_pod(name="plain"))
    assert await placed(cluster, "plain") == "n1"
