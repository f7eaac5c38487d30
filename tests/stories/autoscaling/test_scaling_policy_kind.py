"""A ScalingPolicy of Kubernetes: it owns the scale of its instance, and nothing else may."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import AUTOSCALER, INSTANCE, SCALING_POLICY
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime

SPEC = {"scaleTargetRef": {"name": "one"}, "minReplicas": 3, "maxReplicas": 8}


def state_of(body: dict | None) -> str:
    return ((body or {}).get("status") or {}).get("state", "")


async def test_a_policy_owns_the_scale_and_the_resource_follows_it(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.apply_resource(SCALING_POLICY, "one", SPEC)
        grown = await cluster.settles(INSTANCE, "one", lambda b: b["spec"]["nodes"] == 3, "it is as large as the least")
        assert grown["metadata"]["name"] == "one"
        await cluster.settles(INSTANCE, "one", lambda b: b["status"]["readyNodes"] == 3, "its nodes are there")
        shown = await cluster.settles(
            SCALING_POLICY, "one", lambda b: b["status"].get("desiredReplicas") == 3, "it shows what it decided"
        )
        assert shown["status"]["reason"] in ("TooFewReplicas", "MetricUnavailable")
        assert {each["type"] for each in shown["status"]["conditions"]} >= {"ScalingActive", "AbleToScale", "Ready"}


async def test_a_second_owner_is_refused(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        target = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInstance", "name": "one"}
        metric = {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "9"}},
        }
        spec = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4, "metrics": [metric]}
        await cluster.kube.create(
            AUTOSCALER, {"metadata": {"name": "hpa", "namespace": "default"}, "spec": spec}, "default"
        )
        await cluster.apply_resource(SCALING_POLICY, "one", SPEC)
        refused = await cluster.settles(SCALING_POLICY, "one", lambda b: state_of(b) == "Refused", "it is refused")
        assert "hpa" in next(each["message"] for each in refused["status"]["conditions"] if each["type"] == "Ready")
        answer = await cluster.http["compute"].get("/v1/scaling-policies/one")
        assert answer.status_code == 404
