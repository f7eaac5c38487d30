"""Schemas of built-in API types: read from the generated type table, compiled per struct on first use.

`schema_of` turns a Go struct into the same `Schema` that CRDs use, so that pruning, strategic merge and server-side
apply need only one form. `openapi_of` returns a struct and everything it refers to as OpenAPI components. Protobuf
decoding uses the raw rows of the table through `rows_of`.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from matrixcontainer.kubeapi.schema.structural import Schema

Row = list[Any]  # [json name, protobuf number, type, flags, extras?]; flags: p pointer, o omitempty, ? optional

SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "int": {"type": "integer", "format": "int32"},
    "uint32": {"type": "integer"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "quantity": {"x-kubernetes-int-or-string": True, "format": "quantity"},
    "intorstring": {"x-kubernetes-int-or-string": True, "format": "int-or-string"},
    "fields": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "json": {"x-kubernetes-preserve-unknown-fields": True},
}

# Structs that are atomic wherever they are used.
ATOMIC_CORE = (
    "ConfigMapKeySelector LocalObjectReference NodeSelector NodeSelectorTerm "
    "ObjectFieldSelector ObjectReference ResourceFieldSelector "
    "SecretKeySelector SecretReference TopologySelectorTerm TypedLocalObjectReference"
)
ATOMIC = {f"core.v1.{name}" for name in ATOMIC_CORE.split()} | {
    "autoscaling.v1.CrossVersionObjectReference",
    "discovery.v1.EndpointPort",
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
    "networking.v1.ServiceBackendPort",
    "rbac.v1.RoleRef",
    "rbac.v1.Subject",
}
ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "uint32": 0, "float64": 0}


@cache
def table() -> dict[str, list[Row]]:
    path = Path(__file__).with_name("types.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    return document["types"]


def rows_of(name: str) -> list[Row]:
    return table()[name]


@cache
def flat_rows(name: str) -> dict[str, Row]:
    """Fields of a struct by JSON name, with inlined structs folded in."""
    found: dict[str, Row] = {}
    for row in rows_of(name):
        if row[0]:
            found[row[0]] = row
        else:
            found |= flat_rows(row[2])
    return found


@cache
def schema_of(name: str) -> Schema:
    """The structural schema of a struct such as `core.v1.Pod`; apiVersion and kind are left to the caller."""
    schema = Schema({"type": "object"})
    schema.ref = name
    schema.map_type = "atomic" if name in ATOMIC else ""
    for key, row in flat_rows(name).items():
        schema.properties[key] = _node(row[2], row[4] if len(row) > 4 else {})
    return schema


@cache
def zero_of(name: str) -> dict[str, Any]:
    """What Go serialises for an empty struct: fields without omitempty, and always nested structs."""
    found: dict[str, Any] = {}
    for key, row in flat_rows(name).items():
        kind, flags = row[2], row[3]
        if "." in kind and ":" not in kind and kind[0] != "[" and "p" not in flags:
            found[key] = zero_of(kind)
        elif kind in ("time", "microtime") and "p" not in flags:
            found[key] = None
        elif "o" not in flags:
            found[key] = None if "p" in flags or ":" in kind or kind.startswith("[") else ZEROS.get(kind)
    return found


def _node(kind: str, extras: dict[str, Any]) -> Schema:
    if kind.startswith("[]") or kind.startswith("wrapped:"):
        inner = kind.removeprefix("[]").removeprefix("wrapped:")
        node = Schema({"type": "array"})
        node.items = _node(inner, {})
        node.list_type = extras.get("listType", "atomic")
        node.list_keys = extras.get("listKeys", [])
        if node.list_type == "map" and not node.list_keys:
            node.list_keys = [extras["mergeKey"]] if "mergeKey" in extras else []
    elif kind.startswith("map:"):
        node = Schema({"type": "object"})
        node.additional = _node(kind[4:], {})
        node.map_type = extras.get("mapType", "")
    elif kind in SCALARS:
        node = Schema(SCALARS[kind])
        if kind in ("raw", "fields"):
            node.map_type = "atomic"
    elif not extras:
        return schema_of(kind)
    else:
        base = schema_of(kind)
        node = Schema({"type": "object"})
        node.properties, node.ref = base.properties, base.ref
        node.map_type = extras.get("mapType", base.map_type)
    node.strategy = [word for word in extras.get("strategy", "").split(",") if word]
    node.merge_key = extras.get("mergeKey", "")
    return node


# ---- OpenAPI components

COMPONENTS = "#/components/schemas/"
PACKAGES = {"meta.v1": "io.k8s.apimachinery.pkg.apis.meta.v1"}


def component_name(name: str) -> str:
    """Name of a type in OpenAPI documents: `io.k8s.api.core.v1.Pod` for `core.v1.Pod`."""
    package, kind = name.rsplit(".", 1)
    if package == "apiextensions.v1":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{kind}"
    return f"{PACKAGES.get(package, 'io.k8s.api.' + package)}.{kind}"


def openapi_of(name: str, found: dict[str, Any]) -> None:
    """Add the struct and everything it refers to to `found`, the schemas of an OpenAPI 3 document."""
    key = component_name(name)
    if key in found:
        return
    properties: dict[str, Any] = {}
    found[key] = body = {"type": "object", "properties": properties}
    required = []
    for field, row in flat_rows(name).items():
        extras = row[4] if len(row) > 4 else {}
        properties[field] = _openapi_node(row[2], extras, found)
        if "o" not in row[3] and "?" not in row[3] and "p" not in row[3] and field not in ("metadata", "status"):
            required.append(field)
    if required:
        body["required"] = required


def _openapi_node(kind: str, extras: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any]
    if kind.startswith("[]") or kind.startswith("wrapped:"):
        inner = kind.removeprefix("[]").removeprefix("wrapped:")
        node = {"type": "array", "items": _openapi_node(inner, {}, found)}
        node["x-kubernetes-list-type"] = extras.get("listType", "atomic")
        if "listKeys" in extras:
            node["x-kubernetes-list-map-keys"] = extras["listKeys"]
    elif kind.startswith("map:"):
        node = {"type": "object", "additionalProperties": _openapi_node(kind[4:], {}, found)}
    elif kind in ("quantity", "intorstring"):
        node = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
        node |= {"format": "int-or-string"} if kind == "intorstring" else {}
    elif kind in SCALARS:
        node = {k: v for k, v in SCALARS[kind].items() if not k.startswith("x-")}
    else:
        openapi_of(kind, found)
        node = {"allOf": [{"$ref": COMPONENTS + component_name(kind)}], "default": {}}
    if "mapType" in extras:
        node["x-kubernetes-map-type"] = extras["mapType"]
    if "strategy" in extras:
        node["x-kubernetes-patch-strategy"] = extras["strategy"]
    if "mergeKey" in extras:
        node["x-kubernetes-patch-merge-key"] = extras["mergeKey"]
    return node
