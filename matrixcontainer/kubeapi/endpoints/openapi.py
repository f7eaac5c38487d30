"""OpenAPI: version 3 per group-version with an index; version 2 as an empty document only.

kubectl refuses to apply unless the documents declare the `fieldValidation` parameter on PATCH. It caches each document
by the hash in the index, so the hash must change exactly when the content does. Hashes are computed from the sources of
a document (CRD schemas, the built-in table); the documents themselves are generated on request.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from matrixcontainer.kubeapi.endpoints.discovery import subresource_entries
from matrixcontainer.kubeapi.meta.version import VERSION
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.schema.types import COMPONENTS, component_name, openapi_of

PRINTER_VERSION = "3"  # bump when this module's output changes for the same sources

INFO = {"title": "Kubernetes", "version": "v1.33.0"}
VERSION_INFO = "io.k8s.apimachinery.pkg.version.Info"

JSON_FORMS = ("application/json", "application/yaml")
PATCH_FORMS = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

VALUE_SCHEMAS = ("default", "enum", "example")  # keywords whose value is data, not a schema

QUERY_PARAMETERS = {
    "pretty": "string", "allowWatchBookmarks": "boolean", "continue": "string", "fieldSelector": "string",
    "labelSelector": "string", "limit": "integer", "resourceVersion": "string", "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean", "timeoutSeconds": "integer", "watch": "boolean", "dryRun": "string",
    "fieldManager": "string", "fieldValidation": "string", "force": "boolean", "gracePeriodSeconds": "integer",
    "orphanDependents": "boolean", "propagationPolicy": "string",
}  # fmt: skip
LIST_QUERY = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
WRITE_QUERY = ("dryRun", "fieldManager", "fieldValidation")
DELETE_QUERY = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")


class OpenApi:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def index(self) -> bytes:
        return self.registry.derived("openapi index", self._index)

    def _index(self) -> bytes:
        paths = {}
        for group, version in self._group_versions():
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            url = f"/openapi/v3/{name}?hash={self.hash_of(group, version)}"
            paths[name] = {"serverRelativeURL": url}
        paths["version"] = {"serverRelativeURL": f"/openapi/v3/version?hash={self.hash_of('', 'version')}"}
        return _encode({"paths": paths})

    def version_document(self) -> bytes:
        """The document for `/version`, which belongs to no group."""
        shape = {key: {"type": "string"} for key in VERSION}
        answers = {"200": response_schema(VERSION_INFO)}
        paths = {"/version/": {"get": {"operationId": "getCodeVersion", "responses": answers}}}
        return _document(paths, {VERSION_INFO: {"type": "object", "properties": shape}})

    def _group_versions(self) -> list[tuple[str, str]]:
        pairs = [("", "v1")]
        for group in self.registry.groups():
            versions = self.registry.versions(group)
            pairs += [(group, version) for version in versions if self.registry.in_group_version(group, version)]
        return pairs

    def hash_of(self, group: str, version: str) -> str:
        digest = hashlib.sha256(PRINTER_VERSION.encode())
        for resource in sorted(self.registry.in_group_version(group, version), key=lambda r: r.plural):
            digest.update(f"{resource.plural} {resource.kind} {resource.fingerprint}\n".encode())
        return digest.hexdigest()[:32].upper()

    def document(self, group: str, version: str) -> bytes:
        """The document of a group-version. Raises KeyError if it is not served."""
        return self.registry.derived(f"openapi {group}/{version}", lambda: self._build(group, version))

    def _build(self, group: str, version: str) -> bytes:
        resources = self.registry.in_group_version(group, version)
        if not resources:
            raise KeyError(f"{group}/{version}")
        schemas: dict[str, Any] = {}
        paths: dict[str, Any] = {}
        for resource in sorted(resources, key=lambda r: r.plural):
            add_schemas(resource, schemas)
            paths |= paths_of(resource)
        for extra in ("meta.v1.DeleteOptions", "meta.v1.Status"):
            openapi_of(extra, schemas)
        return _document(paths, schemas)


def swagger(protobuf: bool) -> bytes:
    """OpenAPI 2, in protobuf or JSON: a title without paths or definitions (gnostic's Document, fields 1, 2, 8 and 9).

    client-go, and so kubectl and Helm, requests it in protobuf for a kind that it cannot find, and fails on an error
    before it can report that. From an empty document it concludes that there is nothing to validate and reports that
    the kind is not served. Everything else is read from version 3.
    """
    if not protobuf:
        return _encode({"swagger": "2.0", "info": INFO, "paths": {}, "definitions": {}})
    info = b"\x0a\x0aKubernetes\x12\x07v1.33.0"
    return b"\x0a\x032.0" + b"\x12" + bytes([len(info)]) + info + b"\x42\x00\x4a\x00"


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(paths: dict[str, Any], schemas: dict[str, Any]) -> bytes:
    return _encode({"openapi": "3.0.0", "info": INFO, "paths": paths, "components": {"schemas": schemas}})


# ---- schemas


def schema_name(resource: Resource) -> str:
    if resource.type_name:
        return component_name(resource.type_name)
    reversed_group = ".".join(reversed(resource.group.split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def gvk(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def add_schemas(resource: Resource, found: dict[str, Any]) -> None:
    """Add the schemas of the kind and its list, with the x-kubernetes extensions by which clients find them."""
    name = schema_name(resource)
    if resource.custom:
        found[name] = custom_schema(resource.document or {"type": "object"}, found)
    else:
        openapi_of(resource.type_name, found)
        properties = found[name]["properties"]
        found[name]["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}} | properties
    found[name]["x-kubernetes-group-version-kind"] = [gvk(resource)]
    if "list" not in resource.verbs:
        return
    found[f"{name}List"] = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": {"$ref": COMPONENTS + name}},
        },
        "x-kubernetes-group-version-kind": [gvk(resource) | {"kind": resource.list_kind}],
    }


def custom_schema(document: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """A CRD schema with apiVersion, kind and metadata added."""
    openapi_of("meta.v1.ObjectMeta", found)
    reference = {"$ref": COMPONENTS + component_name("meta.v1.ObjectMeta")}
    standard = {
        "apiVersion": {"type": "string", "description": "Versioned schema of this representation of an object."},
        "kind": {"type": "string", "description": "Name of the REST resource this object represents."},
        "metadata": {"allOf": [reference], "description": "Standard object metadata."},
    }
    body = _with_any_of(document)
    body["properties"] = {**(body.get("properties") or {}), **standard}
    body.setdefault("type", "object")
    return body


def _with_any_of(node: Any) -> Any:
    """Add OpenAPI's `anyOf` to int-or-string nodes."""
    if isinstance(node, list):
        return [_with_any_of(one) for one in node]
    if not isinstance(node, dict):
        return node
    found = {key: value if key in VALUE_SCHEMAS else _with_any_of(value) for key, value in node.items()}
    if node.get("x-kubernetes-int-or-string") is True and "anyOf" not in node:
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return found


# ---- paths


METHODS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # verb: method, action, query
    "list": ("get", "list", LIST_QUERY),
    "create": ("post", "post", WRITE_QUERY),
    "deletecollection": ("delete", "deletecollection", DELETE_QUERY + LIST_QUERY[1:]),
    "get": ("get", "get", ()),
    "update": ("put", "put", WRITE_QUERY),
    "patch": ("patch", "patch", (*WRITE_QUERY, "force")),
    "delete": ("delete", "delete", DELETE_QUERY),
}
COLLECTION, ONE = ("list", "create", "deletecollection"), ("get", "update", "patch", "delete")


def paths_of(resource: Resource) -> dict[str, Any]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    plural = f"{root}/{resource.plural}"
    scoped = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else plural
    path_prefixes: list[tuple[str, tuple[str, ...], bool]] = [
        (scoped, COLLECTION, False),
        (f"{scoped}/{{name}}", ONE, True),
    ]
    paths: dict[str, Any] = {}
    for path, served_verbs, named in path_prefixes:
        if verbs := [verb for verb in served_verbs if verb in resource.verbs]:
            paths[path] = operations(resource, verbs) | parameters(resource, named)
    if resource.namespaced and "list" in resource.verbs:
        paths[plural] = operations(resource, ["list"])
    for name, _, _, sub_verbs in subresource_entries(resource):
        paths[f"{scoped}/{{name}}/{name}"] = operations(resource, sub_verbs) | parameters(resource, named=True)
    return paths


def operations(resource: Resource, verbs: Iterable[str]) -> dict[str, Any]:
    methods = [METHODS[verb] for verb in verbs]
    return {method: operation(resource, action, query) for method, action, query in methods}


def path_parameter(place: dict[str, Any], kind: str) -> dict[str, Any]:
    return place | {"schema": {"type": kind, "uniqueItems": True}}


def parameters(resource: Resource, named: bool) -> dict[str, Any]:
    """Parameters of all operations of a path: those in the path, and `pretty`."""
    names = (["namespace"] if resource.namespaced else []) + (["name"] if named else [])
    places: list[dict[str, Any]] = [{"name": name, "in": "path", "required": True} for name in names]
    return {"parameters": [path_parameter(place, "string") for place in [*places, {"name": "pretty", "in": "query"}]]}


def operation(resource: Resource, action: str, query: tuple[str, ...]) -> dict[str, Any]:
    name = schema_name(resource) + ("List" if action == "list" else "")
    scope = "Namespaced" if resource.namespaced else ""
    document: dict[str, Any] = {
        "operationId": f"{action}{resource.group.split('.')[0].title() or 'Core'}{resource.version.title()}{scope}{resource.kind}",  # noqa: E501
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(resource),
    }
    is_list = [path_parameter({"name": verb, "in": "query"}, QUERY_PARAMETERS[verb]) for verb in dict.fromkeys(query)]
    forms: tuple[str, ...] = PATCH_FORMS if action == "patch" else JSON_FORMS
    if resource.custom and action == "patch":
        forms = PATCH_FORMS[:3]
    if not resource.custom and action != "patch":
        forms = ("*/*",)
    if action in ("post", "put", "patch"):
        shape: dict[str, Any] = {"type": "object"} if action == "patch" else {"$ref": COMPONENTS + name}
        document["requestBody"] = {"required": True, "content": {form: {"schema": shape} for form in forms}}
    return document | {
        "parameters": is_list,
        "responses": {"200": response_schema(name), "401": {"description": "Unauthorized"}},
    }


def response_schema(name: str) -> dict[str, Any]:
    return {"description": "OK", "content": {"application/json": {"schema": {"$ref": COMPONENTS + name}}}}
