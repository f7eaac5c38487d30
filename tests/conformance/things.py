"""Sound objects for the cases, and the definitions every server gets before the first case."""

from copy import deepcopy
from typing import Any

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "conformance.test"

WIDGET_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
        "note": {"type": "string", "nullable": True, "maxLength": 20},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": {"type": "string"}},
        "plain": {"type": "array", "maxItems": 3, "items": {"type": "integer"}},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name", "port"],
                "properties": {
                    "name": {"type": "string"},
                    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                    "protocol": {"type": "string", "default": "TCP"},
                },
            },
        },
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3},
        "share": {"x-kubernetes-int-or-string": True},
        "nested": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 7}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "when": {"type": "string", "format": "date-time"},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "selector": {"type": "string"},
    },
}


def crd(
    plural: str, versions: list[dict[str, Any]], scope: str = "Namespaced", group: str = GROUP, **names: Any
) -> dict[str, Any]:
    """A CustomResourceDefinition; the kind is the singular of the plural, capitalised, unless given."""
    kind = names.pop("kind", plural.removesuffix("s").capitalize())
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind} | names,
            "versions": versions,
        },
    }


def version(
    name: str = "v1", schema: dict[str, Any] | None = None, storage: bool = True, **more: Any
) -> dict[str, Any]:
    """One version of a CRD."""
    current = schema if schema is not None else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": current}} | more


def of_spec(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A root schema with this spec and a free status."""
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": {"spec": spec, "status": status}} | more


WIDGETS = crd(
    "widgets",
    [
        version(
            schema=of_spec(deepcopy(WIDGET_SPEC)),
            subresources={
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.size",
                    "statusReplicasPath": ".status.size",
                    "labelSelectorPath": ".status.selector",
                },
            },
            additionalPrinterColumns=[
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}],
        )
    ],
    shortNames=["wd"],
    categories=["all", "things"],
)

GADGETS = crd(
    "gadgets",
    [
        version(
            "v1",
            {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        ),
        version(
            "v1beta1",
            {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            storage=False,
            deprecated=True,
        ),
    ],
    scope="Cluster",
)

LOOSE = crd("looses", [version()], kind="Loose")

STANDING = (WIDGETS, GADGETS, LOOSE)
W = f"~{GROUP}/v1/widgets"
G = f"/apis/{GROUP}/v1/gadgets"
L = f"~{GROUP}/v1/looses"


def widget(name: str = "one", **parts: Any) -> dict[str, Any]:
    """A Widget of size 3; `spec` is merged, `metadata` too."""
    spec = {"size": 3} | parts.pop("spec", {})
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name} | parts.pop("metadata", {}),
        "spec": spec,
    } | parts


def loose(name: str = "one", **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Loose",
        "metadata": {"name": name} | parts.pop("metadata", {}),
    } | parts


def config_map(name: str = "one", data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name} | metadata, "data": data or {"k": "v"}}


def secret(name: str = "one", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}} | parts


def pod_spec(**parts: Any) -> dict[str, Any]:
    """A pod spec nobody schedules and no token is mounted into."""
    current = {"containers": [{"name": "main", "image": "example.test/image:1"}]}
    return current | {"schedulerName": "nobody", "automountServiceAccountToken": False} | parts


def pod(name: str = "one", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} | (metadata or {}), "spec": pod_spec(**spec)}


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(**spec)}


def deployment(name: str = "one", **spec: Any) -> dict[str, Any]:
    current = {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template()} | spec
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": current}


def owner(reported: Any, **more: Any) -> dict[str, Any]:
    """An owner reference to an object."""
    meta = reported["metadata"]
    return {
        "apiVersion": reported["apiVersion"],
        "kind": reported["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    } | more
