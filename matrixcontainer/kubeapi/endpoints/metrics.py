"""metrics.k8s.io/v1beta1, for `kubectl top`: computed when asked, never stored."""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.endpoints.virtual_resource import listed
from matrixcontainer.kubeapi.kubelet.milli_quantities import spelled, spelled_bytes
from matrixcontainer.kubeapi.kubelet.resource_usage import Usage
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.structural import Schema

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.app import App
    from matrixcontainer.kubeapi.endpoints.request import Request, Target

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
WINDOW = "15s"

USAGE = {"type": "object", "additionalProperties": {"type": "string"}}
COMMON = {"timestamp": {"type": "string", "format": "date-time"}, "window": {"type": "string"}}
CONTAINERS = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "usage": USAGE}},
}


def register(registry: Registry) -> None:
    for plural, kind, namespaced, part in (
        ("nodes", "NodeMetrics", False, {"usage": USAGE}),
        ("pods", "PodMetrics", True, {"containers": CONTAINERS}),
    ):
        document = {"type": "object", "properties": COMMON | part}
        registry.add(
            Resource(
                group=GROUP,
                version=VERSION,
                plural=plural,
                kind=kind,
                namespaced=namespaced,
                schema=Schema(document),
                strategy=Strategy(),
                verbs=("get", "list"),
                custom=True,
                document=document,
                fingerprint=f"metrics {kind}",
                computed=answer,
            )
        )


def answer(app: "App", request: "Request", resource: Resource, target: "Target") -> Response:
    if request.method not in ("GET", "HEAD") or target.subresource or target.watch or request.flag("watch"):
        raise errors.method_not_allowed()
    storage = resource.plural
    if target.name:
        record = app.api.store.get((storage, target.namespace, target.name))
        found = _measured(app, resource, record.obj) if record is not None else None
        if found is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        return app.render(request, resource, found, 200)
    labels = LabelSelector(request.query.get("labelSelector", ""))
    fields = FieldSelector(request.query.get("fieldSelector", ""), resource.fields)
    items = []
    for record in app.api.store.objects_of(storage, target.namespace):
        obj = record.obj
        if labels.matches(obj) and fields.matches(obj) and (found := _measured(app, resource, obj)) is not None:
            items.append(found)
    return listed(app, request, resource, items)


def _measured(app: "App", resource: Resource, obj: dict[str, Any]) -> dict[str, Any] | None:
    """The metrics of a pod that runs or a node that is ready; None for all others."""
    meta, usages = obj["metadata"], app.api.workloads.usages
    at = timestamp(app.api.now())
    kept = ("name", "namespace", "labels")
    found: dict[str, Any] = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {key: meta[key] for key in kept if key in meta} | {"creationTimestamp": at},
        "timestamp": at,
        "window": WINDOW,
    }
    if resource.plural == "nodes":
        node = app.api.workloads.nodes.get(meta["name"])
        return found | {"usage": _spelled(usages.of_node(obj))} if node is not None and node.ready else None
    if (obj.get("status") or {}).get("phase") != "Running":
        return None
    usage = usages.of_pod(obj)
    return found | {"containers": [{"name": name, "usage": _spelled(used)} for name, used in usage.items()]}


def _spelled(usage: Usage) -> dict[str, str]:
    return {word: spelled_bytes(used) if word == "memory" else spelled(used) for word, used in usage.items()}
