"""An autoscaler grows an instance with what its workload has to do: resource and custom metrics, over the scale."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import INFER, INSTANCE, Kind
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime
HPA = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


def reported(body, type: str) -> str:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == type), "")


def an_hpa(*metrics: dict) -> dict:
    target = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInstance", "name": "one"}
    spec = {"scaleTargetRef": target, "minReplicas": 6, "maxReplicas": 8, "metrics": list(metrics)}
    return {"metadata": {"name": "one", "namespace": "default"}, "spec": spec}


def of_workload(metric: str, average: str) -> dict:
    about = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInfer", "name": "one"}
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Object", "object": {"metric": {"name": metric}, "describedObject": about, "target": target}}


def of_pods(average: str) -> dict:
    return {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": average}},
    }


async def test_hpa_scales_an_instance_with_its_workload(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 6})
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        await cluster.settles(INFER, "one", lambda b: reported(b, "Ready") == "True", "the model is served")
        await cluster.kube.create(HPA, an_hpa(of_pods("1"), of_workload("tokens_per_second", "100k")), "default")
        calm = await cluster.settles(
            HPA, "one", lambda b: reported(b, "ScalingActive") == "True", "both metrics are read"
        )
        assert (calm["status"]["currentReplicas"], calm["status"]["desiredReplicas"]) == (6, 6)
        assert {each["type"] for each in calm["status"]["currentMetrics"]} == {"Resource", "Object"}

        answer = await cluster.http["infer"].put("/v1/deployments/one/load", json={"requestsPerSecond": 20.0})
        assert answer.status_code < 300, answer.text
        busy = await cluster.settles(
            INFER, "one", lambda b: float(b["status"]["metrics"]["tokens_per_second"]) > 100, "tokens flow"
        )
        rate = float(busy["status"]["metrics"]["tokens_per_second"])
        desired = an_hpa(of_pods("1"), of_workload("tokens_per_second", str(int(rate / 20))))
        await cluster.kube.merge(HPA, "one", {"spec": desired["spec"]}, "default")
        grown = await cluster.settles(INSTANCE, "one", lambda b: b["status"]["readyNodes"] == 8, "it has grown")
        assert grown["spec"]["nodes"] == 8
        await cluster.settles(INFER, "one", lambda b: b["status"]["pods"] == 8, "the workload has followed")
