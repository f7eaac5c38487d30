"""apiregistration.k8s.io/v1 APIServices, to be read: one for each group and version, as an aggregator lists them.

Nothing is aggregated here, so they are computed when asked and cannot be written: an API behind a Service needs pods
that really run.
"""

import uuid
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.codec.negotiation import choose
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.endpoints.virtual_resource import listed
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.jsonpath import JsonPath
from matrixcontainer.kubeapi.meta.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.resource import Printed, Registry, Resource
from matrixcontainer.kubeapi.registry.strategy import Strategy
from matrixcontainer.kubeapi.schema.structural import Schema

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.app import App
    from matrixcontainer.kubeapi.endpoints.request import Request, Target

GROUP, VERSION = "apiregistration.k8s.io", "v1"
MANAGED = "kube-aggregator.kubernetes.io/automanaged"
NAMES = uuid.UUID("6f1d5c1e-52a9-4c5e-8f0a-0c2a4f1f9d11")

# How clients rank groups that serve a kind of one name: public constants of kube-apiserver 1.33; what is not here,
# such as a definition's group, ranks last.
PRIORITIES = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
}
DEFINED = (1000, 100)

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "group": TEXT,
                "version": TEXT,
                "groupPriorityMinimum": NUMBER,
                "versionPriority": NUMBER,
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": dict.fromkeys(
                            ("type", "status", "reason", "message", "lastTransitionTime"), TEXT
                        ),
                    },
                }
            },
        },
    },
}


def register(registry: Registry) -> None:
    registry.add(
        Resource(
            group=GROUP,
            version=VERSION,
            plural="apiservices",
            kind="APIService",
            namespaced=False,
            schema=Schema(DOCUMENT),
            strategy=Strategy(),
            verbs=("get", "list"),
            categories=("api-extensions",),
            custom=True,
            document=DOCUMENT,
            fingerprint="apiservices",
            columns=(
                Printed("Service", "string", JsonPath(".spec.service"), description="Who serves it."),
                Printed("Available", "string", JsonPath(".status.available"), description="Whether it is served."),
                Printed("Age", "date", JsonPath(".metadata.creationTimestamp"), description="Since when it is served."),
            ),
            computed=answer,
        )
    )


def answer(app: "App", request: "Request", resource: Resource, target: "Target") -> Response:
    if request.method not in ("GET", "HEAD") or target.subresource or target.watch or request.flag("watch"):
        raise errors.method_not_allowed()
    found = {one["metadata"]["name"]: one for one in services(app.api.registry, timestamp(app.api.started))}
    if target.name:
        if target.name not in found:
            raise errors.not_found(resource.plural, resource.group, target.name)
        one = found[target.name]
        in_a_table = choose(request.accept).form == "Table"
        return app.render(request, resource, printed(one) if in_a_table else one, 200)
    labels = LabelSelector(request.query.get("labelSelector", ""))
    fields = FieldSelector(request.query.get("fieldSelector", ""), resource.fields)
    items = [one for _, one in sorted(found.items()) if labels.matches(one) and fields.matches(one)]
    return listed(app, request, resource, items, printed)


def services(registry: Registry, since: str) -> list[dict[str, Any]]:
    """One object for each group and version in the registry."""
    found = []
    for group in ["", *registry.groups()]:
        if group == GROUP:
            continue
        for version in registry.versions(group):
            name = f"{version}.{group}"
            minimum, rank = DEFINED
            if group in PRIORITIES:
                minimum, rank = PRIORITIES[group], 15 * int(version[1:]) if group else 1
            spec = {"version": version, "groupPriorityMinimum": minimum, "versionPriority": rank}
            condition = {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": since,
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
            found.append(
                {
                    "kind": "APIService",
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "metadata": {
                        "name": name,
                        "uid": str(uuid.uuid5(NAMES, name)),
                        "resourceVersion": "1",
                        "creationTimestamp": since,
                        "labels": {MANAGED: "onstart" if registry.is_built_in(group) else "true"},
                    },
                    "spec": ({"group": group} if group else {}) | spec,
                    "status": {"conditions": [condition]},
                }
            )
    return found


def printed(one: dict[str, Any]) -> dict[str, Any]:
    """With what a table shows of it."""
    return one | {"spec": one["spec"] | {"service": "Local"}, "status": one["status"] | {"available": "True"}}
