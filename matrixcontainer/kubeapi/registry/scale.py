"""The Scale subresource, which `kubectl scale` and autoscalers read and write."""

from __future__ import annotations

from typing import Any

from matrixcontainer.kubeapi.meta.jsonpath import JsonPath, compile_path
from matrixcontainer.kubeapi.registry.resource import PrinterColumn, Resource, ScalePaths
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.types import schema_of

SCALES = Resource(
    "autoscaling",
    "v1",
    "scales",
    "Scale",
    True,
    schema_of("autoscaling.v1.Scale"),
    Strategy(),
    columns=(
        PrinterColumn("Desired", "integer", JsonPath(".spec.replicas"), description="Desired number of replicas."),
        PrinterColumn("Available", "integer", JsonPath(".status.replicas"), description="Current number of replicas."),
        PrinterColumn(
            "Age", "date", JsonPath(".metadata.creationTimestamp"), description="How long ago it was created."
        ),
    ),
)


def scale_of(obj: dict[str, Any], paths: ScalePaths) -> dict[str, Any]:
    """The autoscaling/v1 Scale view of an object."""
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": compile_path(paths.status).first(obj) or 0}
    selector = compile_path(paths.selector).first(obj) if paths.selector else None
    if selector is None and obj.get("apiVersion", "").startswith("apps/"):
        labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if selector:
        status["selector"] = selector
    replicas = compile_path(paths.spec).first(obj)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": replicas} if replicas else {},  # Go omits a zero
        "status": status,
    }
