"""Kubernetes objects of CloudMatrix-Infer: one pod on every node of the instance, according to the node's role.

Every pod has two containers: the server of its role, and `ems`, the node's part of the caching pool (CPU memory
accessed over UB, as in the CloudMatrix384 paper, arXiv 2506.12708). Pod names are derived from the owner, the role and
the node, so that creating them is idempotent.
"""

from __future__ import annotations

from typing import Any

from matrixcontainer.operator.decision import INSTANCE_LABEL, MANAGED_BY, MANAGED_LABEL
from matrixresource.contract.allocations import DEPLOYMENT_LABEL

ROLE_LABEL = "cloudmatrix.io/role"
NPU_RESOURCE = "huawei.com/Ascend910"
IMAGE = "cloudmatrix/infer"


def pods_for(owner: dict[str, Any], roles: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The desired pods by name. `owner` is the CloudMatrixInfer; `roles` maps nodes to roles."""
    metadata = owner["metadata"]
    return {
        name: {
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {
                    MANAGED_LABEL: MANAGED_BY,
                    DEPLOYMENT_LABEL: metadata["name"],
                    ROLE_LABEL: role,
                    INSTANCE_LABEL: owner["spec"]["instance"],
                },
                "ownerReferences": [
                    {
                        "apiVersion": owner["apiVersion"],
                        "kind": owner["kind"],
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {
                "nodeName": node,
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 5,
                "tolerations": [
                    {"key": "cloudmatrix.io/instance", "operator": "Exists"},
                    {"key": NPU_RESOURCE, "operator": "Exists"},
                ],
                "containers": [
                    {
                        "name": role,
                        "image": f"{IMAGE}-{role}",
                        "resources": {"limits": {NPU_RESOURCE: "8"}, "requests": {NPU_RESOURCE: "8"}},
                    },
                    {"name": "ems", "image": f"{IMAGE}-ems"},
                ],
            },
        }
        for node, role in sorted(roles.items())
        for name in [pod_name(metadata["name"], role, node)]
    }


def pod_name(deployment: str, role: str, node: str) -> str:
    return f"{deployment}-{role}-{node}"


METRICS = {
    "num_requests_waiting": "queued",
    "num_requests_running": "decoding",
    "requests_per_second": "requestsPerSecond",
    "tokens_per_second": "tokensPerSecond",
    "tokens_per_second_per_npu": "tokensPerSecondPerNpu",
    "prompt_tokens_per_second": "promptTokensPerSecond",
    "kv_cache_usage": "kvUsage",
}
"""Metric names, vLLM's where it has one, and the corresponding field of CloudMatrix-Infer's statistics."""


def metrics_of(statistics: dict[str, Any]) -> dict[str, str] | None:
    """A workload's metrics for autoscalers, as quantities with three significant digits, so that smaller changes do not
    cause status updates.

    None until it has served for a whole window: its rates would be too low, and an autoscaler would scale in a
    deployment that is still loading.
    """
    if statistics.get("measuredS", 0.0) < statistics["windowS"]:
        return None
    return {name: _quantity(float(statistics.get(field) or 0.0)) for name, field in METRICS.items()}


def _quantity(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return str(int(rounded)) if rounded == int(rounded) else f"{round(rounded * 1000)}m"
