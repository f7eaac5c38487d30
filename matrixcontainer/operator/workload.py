"""Kubernetes objects of CloudMatrix-Infer: a pod on every node of the instance, by the role it plays.

Prefill and decode nodes each get a pod with two containers: the server of its role, and `ems`, the node's part of the
caching pool (CPU memory reached over UB, as in the CloudMatrix384 paper, arXiv 2506.12708). Names derive from the
owner, the role and the node, so making them twice makes them once.
"""

from __future__ import annotations

from typing import Any

from matrixcontainer.operator.decision import INSTANCE_LABEL, MANAGED_BY, MANAGED_LABEL
from matrixresource.contract.allocations import DEPLOYMENT_LABEL

ROLE_LABEL = "cloudmatrix.io/role"
NPU_RESOURCE = "huawei.com/Ascend910"
IMAGE = "cloudmatrix/infer"


def pods_for(owner: dict[str, Any], roles: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The pods that should be there, by name. `owner` is the CloudMatrixInfer, `roles` maps nodes to roles."""
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
"""Names as vLLM has them where there is one, and the word of CloudMatrix-Infer's statistics."""


def metrics_of(statistics: dict[str, Any]) -> dict[str, str] | None:
    """What an autoscaler may read of a workload, as quantities of three digits: a smaller change is no news.

    None where it has not served for a whole window: rates would be too low, and an autoscaler would shrink what loads.
    """
    if statistics.get("measuredS", 0.0) < statistics["windowS"]:
        return None
    return {name: _quantity(float(statistics.get(word) or 0.0)) for name, word in METRICS.items()}


def _quantity(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return str(int(rounded)) if rounded == int(rounded) else f"{round(rounded * 1000)}m"
