"""Autoscaling: the arithmetic in tables, and autoscalers over declared metrics under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcontainer.kubeapi.controllers.workloads.autoscaler_decision import (
    MetricUnavailable,
    Sample,
    ScalingHistory,
    limit_change,
    replicas_by_pods,
    stabilize_recommendation,
)
from tests.matrixcontainer.kubeapi.api_session import a_crd
from tests.matrixcontainer.kubeapi.virtual import (
    DEPLOYMENTS,
    NS,
    Cluster,
    a_deployment,
    condition_of,
    in_virtual_time,
    rolled_out,
)

WEB = f"{DEPLOYMENTS}/web"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
HPA = f"{HPAS}/web"
TENTH = (0.1, 0.1)


@pytest.mark.parametrize(
    ("uses", "current", "wanted"),
    [
        ([50, 50], 2, 2),  # at its target
        ([54, 54], 2, 2),  # within a tenth
        ([56, 56], 2, 3),  # beyond it
        ([100, 100], 2, 4),
        ([10, 10, 10], 3, 1),
        ([100, None], 2, 2),  # unknown pods use nothing when there is too much to do
        ([10, None], 2, 2),  # and all they asked for when there is too little
        ([10, 10, 10, None], 4, 3),
    ],
)  # fmt: skip
def test_proposals(uses: list[int | None], current: int, wanted: int) -> None:
    samples = [Sample(used, 100) for used in uses]
    assert replicas_by_pods(samples, 0.5, current, TENTH, of_requests=True, cpu=True)[0] == wanted


def test_unready_pods_do_not_raise_the_proposal() -> None:
    samples = [Sample(100, 100), Sample(0, 100, ready=False)]
    assert replicas_by_pods(samples, 0.5, 2, TENTH, of_requests=True, cpu=True)[0] == 2
    with pytest.raises(MetricUnavailable):
        replicas_by_pods(samples[1:], 0.5, 2, TENTH, of_requests=True, cpu=True)


def hpa(least: int = 1, most: int = 10, **behavior: Any) -> dict[str, Any]:
    return {"spec": {"minReplicas": least, "maxReplicas": most, "behavior": behavior}}


@pytest.mark.parametrize(
    ("wanted", "current", "size", "reason"),
    [
        (3, 2, 3, ""),
        (9, 2, 6, "ScaleUpLimit"),
        (30, 8, 10, "TooManyReplicas"),
        (0, 4, 1, "TooFewReplicas"),
        (2, 5, 2, ""),
    ],
)
def test_limits(wanted: int, current: int, size: int, reason: str) -> None:
    assert limit_change(ScalingHistory(), hpa(), wanted, current, 0.0)[:2] == (size, reason)


def test_recent_changes_count_against_the_scaling_policy() -> None:
    slow = hpa(scaleUp={"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]})
    memory = ScalingHistory(changes=[(100.0, 2)])
    assert limit_change(memory, slow, 9, 4, 130.0)[:2] == (4, "ScaleUpLimit")
    assert limit_change(memory, slow, 9, 4, 161.0)[:2] == (6, "ScaleUpLimit")
    assert (
        limit_change(ScalingHistory(), hpa(scaleDown={"selectPolicy": "Disabled", "policies": []}), 1, 4, 0.0)[0] == 4
    )


def test_scale_down_waits_for_the_stabilization_window() -> None:
    memory = ScalingHistory()
    assert stabilize_recommendation(memory, hpa(), 8, 8, 0.0) == (8, "")
    assert stabilize_recommendation(memory, hpa(), 2, 8, 200.0) == (8, "ScaleDownStabilized")
    assert stabilize_recommendation(memory, hpa(), 2, 8, 301.0) == (2, "")


def an_autoscaler(
    *metrics: dict[str, Any], kind: str = "Deployment", version: str = "apps/v1", **spec: Any
) -> dict[str, Any]:
    target = {"apiVersion": version, "kind": kind, "name": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 10, "metrics": list(metrics)} | spec,
    }


def cpu(percent: int) -> dict[str, Any]:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    }


ASKS = {"resources": {"requests": {"cpu": "100m"}}}


@in_virtual_time
async def test_a_deployment_follows_its_load_up_and_down(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=1, container=ASKS))
    await cluster.eventually(WEB, rolled_out)
    await cluster.create(HPAS, an_autoscaler(cpu(50), minReplicas=2))
    await cluster.eventually(WEB, lambda b: b["status"].get("readyReplicas") == 2)
    await cluster.patch(WEB, {"metadata": {"annotations": {"metrics.cloudmatrix.io/total-cpu": "400m"}}})
    await cluster.eventually(WEB, lambda b: b["status"].get("readyReplicas") == 8)
    await asyncio.sleep(60)
    body = (await cluster.get(HPA)).body
    assert body["status"]["currentReplicas"] == body["status"]["desiredReplicas"] == 8
    assert body["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 50
    assert condition_of(body, "ScalingActive")["reason"] == "ValidMetricFound"
    assert condition_of(body, "ScalingLimited")["status"] == "False"
    assert await cluster.settle(600) == 0
    await cluster.patch(WEB, {"metadata": {"annotations": {"metrics.cloudmatrix.io/total-cpu": "50m"}}})
    changed = cluster.now
    await cluster.eventually(WEB, lambda b: b["spec"]["replicas"] == 2, within_s=400)
    assert cluster.now - changed >= 285
    assert condition_of((await cluster.get(HPA)).body, "ScalingLimited")["reason"] == "TooFewReplicas"


@in_virtual_time
async def test_custom_metrics_of_pods_objects_and_the_outside(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    await cluster.eventually(WEB, rolled_out)
    queue = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    described = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
    total = {"metric": {"name": "total"}, "target": {"type": "Value", "value": "10"}, "describedObject": described}
    await cluster.create(
        HPAS,
        an_autoscaler(
            {"type": "Pods", "pods": queue},
            {"type": "Object", "object": total},
            {"type": "External", "external": queue},
        ),
    )
    await cluster.eventually(HPA, lambda b: condition_of(b, "ScalingActive").get("status") == "False")
    notes = {"custom.metrics.cloudmatrix.io/total": "10", "external.metrics.cloudmatrix.io/queue": "20"}
    await cluster.patch("/api/v1/namespaces/default", {"metadata": {"annotations": notes}})
    await cluster.patch(WEB, {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "15"}}})
    await cluster.eventually(WEB, lambda b: b["spec"]["replicas"] == 3)
    await cluster.patch(WEB, {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "10"}}})
    await cluster.patch(
        "/api/v1/namespaces/default", {"metadata": {"annotations": {"external.metrics.cloudmatrix.io/queue": "70"}}}
    )
    await cluster.eventually(WEB, lambda b: b["spec"]["replicas"] == 7)


@in_virtual_time
async def test_a_custom_kind_with_a_scale_is_scaled_too(cluster: Cluster) -> None:
    await cluster.define(a_crd())
    await cluster.create(
        "/apis/example.test/v1/namespaces/default/widgets",
        {"apiVersion": "example.test/v1", "kind": "Widget", "metadata": {"name": "web"}, "spec": {"size": 1}},
    )
    load = {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    await cluster.create(
        HPAS, an_autoscaler({"type": "External", "external": load}, kind="Widget", version="example.test/v1")
    )
    await cluster.patch(
        "/api/v1/namespaces/default", {"metadata": {"annotations": {"external.metrics.cloudmatrix.io/load": "4"}}}
    )
    await cluster.eventually("/apis/example.test/v1/namespaces/default/widgets/web", lambda b: b["spec"]["size"] == 4)


@in_virtual_time
async def test_missing_scale_target(cluster: Cluster) -> None:
    await cluster.create(HPAS, an_autoscaler(cpu(50)))
    body = await cluster.eventually(HPA, lambda b: condition_of(b, "AbleToScale"))
    assert condition_of(body, "AbleToScale")["reason"] == "FailedGetScale"
    assert await cluster.settle(600) == 0
    reported = await cluster.post(
        HPAS, an_autoscaler({"type": "Pods"}, maxReplicas=0, minReplicas=2) | {"metadata": {"name": "bad"}}
    )
    assert {"spec.maxReplicas", "spec.metrics[0].pods"} <= reported.causes.keys()
    assert (await cluster.items(f"{NS}/pods")) == []


def of_object(metric: str) -> dict[str, Any]:
    described = {"apiVersion": "v1", "kind": "Namespace", "name": "default"}
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "Object", "object": {"metric": {"name": metric}, "describedObject": described, "target": target}}


@in_virtual_time
async def test_missing_metric_is_reported_and_scales_nothing(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    await cluster.eventually(WEB, rolled_out)
    await cluster.create(HPAS, an_autoscaler(of_object("dreamt-of")))
    body = await cluster.eventually(HPA, lambda b: condition_of(b, "ScalingActive"))
    current = condition_of(body, "ScalingActive")
    assert (current["status"], current["reason"]) == ("False", "FailedGetObjectMetric")
    assert "unable to get metric dreamt-of of Namespace default" in current["message"]
    assert await cluster.settle(600) == 0
    events = [each for each in await cluster.items(f"{NS}/events") if each["involvedObject"]["name"] == "web"]
    warned = [each for each in events if each["reason"] == "FailedGetObjectMetric"]
    assert [each["type"] for each in warned] == ["Warning"]
    assert "dreamt-of" in warned[0]["message"]
    assert (await cluster.get(WEB)).body["spec"]["replicas"] == 2


@in_virtual_time
async def test_one_missing_metric_forbids_scale_down_only(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=4))
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(f"{NS}", {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "2"}}})
    await cluster.create(HPAS, an_autoscaler(of_object("queue"), of_object("dreamt-of")))
    await cluster.eventually(HPA, lambda b: condition_of(b, "ScalingActive").get("status") == "False")
    await asyncio.sleep(900)
    assert (await cluster.get(WEB)).body["spec"]["replicas"] == 4
    await cluster.patch(f"{NS}", {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "6"}}})
    await cluster.eventually(WEB, lambda b: b["spec"]["replicas"] == 6)


@in_virtual_time
async def test_a_minimum_above_the_maximum_is_refused_and_scales_nothing(cluster: Cluster) -> None:
    """As a real API server does: such an autoscaler never comes to be, and one that is there stays as it was."""
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=2))
    await cluster.eventually(WEB, rolled_out)
    reported = await cluster.post(HPAS, an_autoscaler(of_object("queue"), minReplicas=5, maxReplicas=3))
    assert reported.code == 422
    assert reported.causes["spec.maxReplicas"] == "Invalid value: 3: must be greater than or equal to `minReplicas`"
    await cluster.create(HPAS, an_autoscaler(of_object("queue"), minReplicas=2, maxReplicas=3))
    reported = await cluster.patch(HPA, {"spec": {"minReplicas": 4}})
    assert "must be greater than or equal to `minReplicas`" in reported.causes["spec.maxReplicas"]
    await asyncio.sleep(600)
    assert (await cluster.get(HPA)).body["spec"]["minReplicas"] == 2
    assert (await cluster.get(WEB)).body["spec"]["replicas"] == 2


class SixtyfoldTime:
    """A world that runs sixty times as fast as ours."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        return self._cluster.now * 60

    def wall_s(self, seconds: float) -> float:
        return seconds / 60


@in_virtual_time
async def test_autoscaler_periods_are_emulated_seconds(cluster: Cluster) -> None:
    """Sixty times as fast, five minutes of stabilisation are five seconds."""
    cluster.api.core.emulated_time = SixtyfoldTime(cluster)
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=4))
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(f"{NS}", {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "4"}}})
    await cluster.create(HPAS, an_autoscaler(of_object("queue")))
    await cluster.eventually(HPA, lambda b: condition_of(b, "ScalingActive").get("status") == "True")
    await cluster.patch(f"{NS}", {"metadata": {"annotations": {"custom.metrics.cloudmatrix.io/queue": "2"}}})
    changed = cluster.now
    await cluster.eventually(WEB, lambda b: b["spec"]["replicas"] == 2, within_s=10)
    assert 4.5 <= cluster.now - changed <= 6.0


@in_virtual_time
async def test_metrics_are_served(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(container=ASKS, notes={"metrics.cloudmatrix.io/memory": "1Gi"}))
    await cluster.eventually(WEB, rolled_out)
    pods = await cluster.items("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", labelSelector="app=web")
    assert [pod["containers"] for pod in pods] == [[{"name": "c", "usage": {"cpu": "10m", "memory": "1048576Ki"}}]] * 3
    nodes = await cluster.items("/apis/metrics.k8s.io/v1beta1/nodes")
    assert nodes[0]["usage"] == {"cpu": "130m", "memory": f"{(3 * 1024 + 512) * 1024}Ki"}
    assert (await cluster.get("/apis/metrics.k8s.io/v1beta1/nodes/none")).code == 404
    assert (await cluster.delete("/apis/metrics.k8s.io/v1beta1/nodes/n1")).code == 405
