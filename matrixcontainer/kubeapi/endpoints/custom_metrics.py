"""custom.metrics.k8s.io and external.metrics.k8s.io: what usage.py says, as metrics adapters tell it when asked.

    /apis/custom.metrics.k8s.io/v1beta2/namespaces/NS/pods/NAME/METRIC          of a pod; `*` for those a selector finds
    /apis/custom.metrics.k8s.io/v1beta2/namespaces/NS/PLURAL.GROUP/NAME/METRIC  of any object
    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC                  of something outside

The part of a path where other groups have the name of a kind may here be that of any kind, or of any metric; so each
group has one resource that answers for all names and is listed by none.
"""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.kubelet.milli_quantities import spelled
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import LabelSelector
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.resource import ANY_NAME, Registry, Resource
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.structural import Schema

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.app import App
    from matrixcontainer.kubeapi.endpoints.request import Request, Target

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"


def register(registry: Registry) -> None:
    for group, version, kind, answers in (
        (CUSTOM, "v1beta2", "MetricValueList", of_objects),
        (CUSTOM, "v1beta1", "MetricValueList", of_objects),
        (EXTERNAL, "v1beta1", "ExternalMetricValueList", from_outside),
    ):
        document = {"type": "object"}
        registry.add(
            Resource(
                group=group,
                version=version,
                plural=ANY_NAME,
                kind=kind,
                namespaced=True,
                schema=Schema(document),
                strategy=Strategy(),
                verbs=("get",),
                custom=True,
                document=document,
                fingerprint=f"metrics {kind} {version}",
                computed=answers,
            )
        )


def of_objects(app: "App", request: "Request", resource: Resource, target: "Target") -> Response:
    if request.method not in ("GET", "HEAD") or not target.subresource:
        raise errors.method_not_allowed()
    metric, usages = target.subresource, app.api.workloads.usages
    described = _kind_of(app, target.plural)
    found = []
    for obj in _objects(app, request, described, target):
        value = usages.custom_of_pod(obj, metric) if described.storage == "pods" else usages.custom_of(obj, metric)
        if value is not None:
            found.append(_value(app, resource, described, obj, metric, value))
    if not found and target.name != "*":
        raise _unknown(metric, f"{target.plural} {target.name}")
    return as_json(_list_of(resource, found))


def _kind_of(app: "App", name: str) -> Resource:
    """The kind that PLURAL or PLURAL.GROUP names, in its preferred version."""
    found = app.api.registry.by_storage(name)
    if found is None:
        raise errors.no_such_path()
    return found


def _objects(app: "App", request: "Request", described: Resource, target: "Target") -> list[dict[str, Any]]:
    if target.name != "*":
        record = app.api.store.get((described.storage, target.namespace, target.name))
        return [] if record is None else [described.show(record)]
    labels = LabelSelector(request.query.get("labelSelector", ""))
    records = app.api.store.objects_of(described.storage, target.namespace)
    return [obj for obj in map(described.show, records) if labels.matches(obj)]


def _value(
    app: "App", resource: Resource, described: Resource, obj: dict[str, Any], metric: str, value: int
) -> dict[str, Any]:
    named: dict[str, Any] = {"metricName": metric, "selector": None}
    if resource.version != "v1beta1":
        named = {"metric": {"name": metric, "selector": None}}
    meta = obj["metadata"]
    about = {"kind": described.kind, "namespace": meta.get("namespace", ""), "name": meta["name"]}
    about["apiVersion"] = described.api_version
    return {"describedObject": about} | named | {"timestamp": timestamp(app.api.now()), "value": spelled(value)}


def from_outside(app: "App", request: "Request", resource: Resource, target: "Target") -> Response:
    if request.method not in ("GET", "HEAD") or target.name:
        raise errors.method_not_allowed()
    value = app.api.workloads.usages.external(target.namespace, target.plural)
    if value is None:
        raise _unknown(target.plural, f"namespace {target.namespace}")
    reported = {"metricName": target.plural, "metricLabels": {}, "timestamp": timestamp(app.api.now())}
    return as_json(_list_of(resource, [reported | {"value": spelled(value)}]))


def _list_of(resource: Resource, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}, "items": items}


def _unknown(metric: str, of: str) -> ApiError:
    return ApiError(404, "NotFound", f"the server could not find the metric {metric} for {of}")
