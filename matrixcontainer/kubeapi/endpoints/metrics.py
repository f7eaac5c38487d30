"""metrics.k8s.io/v1beta1, for `kubectl top`: computed on request, never stored."""

from typing import Any

from matrixcontainer.kubeapi.codec.negotiation import negotiate
from matrixcontainer.kubeapi.endpoints.request import Request, Target
from matrixcontainer.kubeapi.endpoints.respond import Responder
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.table import TableForm
from matrixcontainer.kubeapi.kubelet.node_info import NodeIndex
from matrixcontainer.kubeapi.kubelet.resource_usage import Usage
from matrixcontainer.kubeapi.kubelet.usage_reader import UsageReader
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.quantities import format_kibi, format_milli
from matrixcontainer.kubeapi.meta.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.structural import Schema

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
WINDOW = "15s"

USAGE = {"type": "object", "additionalProperties": {"type": "string"}}
COMMON = {"timestamp": {"type": "string", "format": "date-time"}, "window": {"type": "string"}}
CONTAINERS = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "usage": USAGE}},
}


class MetricsApi:
    def __init__(self, core: Core, usages: UsageReader, nodes: NodeIndex) -> None:
        self._core, self._usages, self._nodes = core, usages, nodes
        self._responder = Responder(core.now)

    def register(self) -> None:
        for plural, kind, namespaced, part in (
            ("nodes", "NodeMetrics", False, {"usage": USAGE}),
            ("pods", "PodMetrics", True, {"containers": CONTAINERS}),
        ):
            document = {"type": "object", "properties": COMMON | part}
            self._core.registry.add(
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
                    computed=self.answer,
                )
            )

    def answer(self, request: Request, resource: Resource, target: Target) -> Response:
        if request.method not in ("GET", "HEAD") or target.subresource or target.watch or request.flag("watch"):
            raise errors.method_not_allowed()
        store, storage = self._core.store, resource.plural
        if target.name:
            record = store.get((storage, target.namespace, target.name))
            found = self._metrics_of(resource, record.obj) if record is not None else None
            if found is None:
                raise errors.not_found(resource.plural, resource.group, target.name)
            return self._responder.render(request, resource, found, 200)
        labels = LabelSelector(request.query.get("labelSelector", ""))
        fields = FieldSelector(request.query.get("fieldSelector", ""), resource.fields)
        objects = [record.obj for record in store.objects_of(storage, target.namespace)]
        selected = [obj for obj in objects if labels.matches(obj) and fields.matches(obj)]
        items = [found for obj in selected if (found := self._metrics_of(resource, obj)) is not None]
        meta = {"resourceVersion": str(store.revision)}
        if negotiate(request.accept).form == "Table":
            form = TableForm(resource, request.query.get("includeObject", ""), self._core.now)
            return as_json(form.table(items, meta))
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version}
        return as_json(head | {"metadata": meta, "items": items})

    def _metrics_of(self, resource: Resource, obj: dict[str, Any]) -> dict[str, Any] | None:
        """The metrics of a running pod or a ready node; None for others."""
        meta, at = obj["metadata"], timestamp(self._core.now())
        kept = ("name", "namespace", "labels")
        found: dict[str, Any] = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {key: meta[key] for key in kept if key in meta} | {"creationTimestamp": at},
            "timestamp": at,
            "window": WINDOW,
        }
        if resource.plural == "nodes":
            node = self._nodes.get(meta["name"])
            return (
                found | {"usage": _format_usage(self._usages.of_node(obj))} if node is not None and node.ready else None
            )
        if (obj.get("status") or {}).get("phase") != "Running":
            return None
        usage = self._usages.of_pod(obj)
        return found | {"containers": [{"name": name, "usage": _format_usage(used)} for name, used in usage.items()]}


def _format_usage(usage: Usage) -> dict[str, str]:
    return {
        resource: format_kibi(used) if resource == "memory" else format_milli(used) for resource, used in usage.items()
    }
