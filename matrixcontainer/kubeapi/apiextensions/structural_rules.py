"""Whether the schema of a CRD is structural.

Rules of the public documentation ("Specifying a structural schema"): every node has a type unless it says
int-or-string or preserve-unknown-fields; inside allOf, anyOf, oneOf and not there is no type, default, description,
nullable or additionalProperties, and nothing is named that the schema itself does not have; metadata may only restrict
name and generateName.
"""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import compile_pattern

JUNCTIONS = ("anyOf", "allOf", "oneOf")
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
ROOT, FIELD, ITEM = "at the root", "for specified object fields", "for specified array items"
NOT_NESTED = {  # what may not stand inside a junction, and what it must be instead
    "type": "empty",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    "x-kubernetes-preserve-unknown-fields": "false",
    "x-kubernetes-embedded-resource": "false",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined",
    "x-kubernetes-validations": "empty",
}
UNSUPPORTED = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")


def unsupported(node: Any) -> str:
    """Why no structure can be made of a schema, or "" when one can."""
    if not isinstance(node, dict):
        return ""
    for key in UNSUPPORTED:
        if node.get(key):
            return f"OpenAPIV3Schema '{key.removeprefix('$schema') or 'schema'}' is not supported"
    if isinstance(node.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    parts = [node.get("items"), node.get("additionalProperties"), node.get("not")]
    parts += [*(node.get("properties") or {}).values()]
    parts += [part for word in JUNCTIONS for part in node.get(word) or []]
    return next((why for part in parts if (why := unsupported(part))), "")


def check_structure(document: dict[str, Any], path: str) -> list[Cause]:
    """Everything that keeps a schema from being structural, in the order of its text."""
    found: list[Cause] = []
    _check_node(document, path, ROOT, found)
    _check_complete(document, document, path, path, found)
    return sorted(found, key=str)


def _check_node(node: dict[str, Any], path: str, level: str, found: list[Cause]) -> None:
    kind, items, extra = node.get("type", ""), node.get("items"), node.get("additionalProperties")
    properties = node.get("properties") or {}
    embedded = bool(node.get("x-kubernetes-embedded-resource"))
    free = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    either = bool(node.get("x-kubernetes-int-or-string"))
    if kind == "array" and items is None:
        found.append(errors.required(f"{path}.items", "must be specified"))
    if items is not None:
        _check_node(items, f"{path}.items", ITEM, found)
    for name, child in properties.items():
        _check_node(child, f"{path}.properties[{name}]", FIELD, found)
    if extra is not None:
        if level == ROOT:
            found.append(errors.forbidden_field(f"{path}.additionalProperties", "must not be used at the root"))
        if isinstance(extra, dict):
            _check_node(extra, f"{path}.additionalProperties", FIELD, found)
        if embedded:
            text = "must not be used if x-kubernetes-embedded-resource is set"
            found.append(errors.forbidden_field(f"{path}.additionalProperties", text))
    text = "must be false if x-kubernetes-int-or-string is true"
    if either and free:
        found.append(errors.invalid(f"{path}.x-kubernetes-preserve-unknown-fields", True, text))
    if either and embedded:
        found.append(errors.invalid(f"{path}.x-kubernetes-embedded-resource", True, text))
    first = (node.get("allOf") or [{}])[0]
    skip_first = first.get("anyOf") == INT_OR_STRING
    _check_values(node, path, node.get("anyOf") == INT_OR_STRING, skip_first, found)
    if embedded and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        found.append(errors.invalid(f"{path}.type", kind, text) if kind else errors.required(f"{path}.type", text))
    elif not kind and not either and not free:
        found.append(errors.required(f"{path}.type", f"must not be empty {level}"))
    if level == ROOT and kind and kind != "object":
        found.append(errors.invalid(f"{path}.type", kind, "must be object at the root"))
    if level == ROOT or embedded:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type", "") != "string":
                reported = properties[name].get("type", "")
                found.append(errors.invalid(f"{path}.properties[{name}].type", reported, "must be string"))
    if "metadata" in properties:
        _check_metadata(properties["metadata"], f"{path}.properties[metadata]", level, embedded, found)
    if embedded and not free and not properties:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        found.append(errors.required(f"{path}.properties", text))


def _check_metadata(node: dict[str, Any], path: str, level: str, embedded: bool, found: list[Cause]) -> None:
    if (level == ROOT or embedded) and node.get("type") != "object":
        found.append(errors.invalid(f"{path}.type", node.get("type", ""), "must be object"))
    if level == ROOT:
        more = set(node) - {"type", "properties", "default", "description", "title"}
        names = set(node.get("properties") or {}) - {"name", "generateName"}
        if names or node.get("description") or node.get("title") or any(node[key] for key in more):
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            found.append(errors.forbidden_field(path, text))


def _check_values(node: dict[str, Any], path: str, skip_any: bool, skip_first: bool, found: list[Cause]) -> None:
    for word in JUNCTIONS:
        for index, part in enumerate(node.get(word) or []):
            if word != "anyOf" or not skip_any:
                skips = word == "allOf" and index == 0 and skip_first
                _check_nested(part, f"{path}.{word}[{index}]", skips, found)
    if isinstance(node.get("not"), dict):
        _check_nested(node["not"], f"{path}.not", False, found)
    if node.get("pattern"):
        try:
            compile_pattern(node["pattern"])
        except ValueError as failure:
            text = f"must be a valid regular expression, but isn't: {failure}"
            found.append(errors.invalid(f"{path}.pattern", node["pattern"], text))


def _check_nested(part: dict[str, Any], path: str, skip_any: bool, found: list[Cause]) -> None:
    _check_values(part, path, skip_any, False, found)
    if isinstance(part.get("items"), dict):
        _check_nested(part["items"], f"{path}.items", False, found)
    for name, child in (part.get("properties") or {}).items():
        _check_nested(child, f"{path}.properties[{name}]", False, found)
    if part.get("additionalProperties") is not None:
        found.append(errors.forbidden_field(f"{path}.additionalProperties", "must be undefined to be structural"))
    for key, instead in NOT_NESTED.items():
        if part.get(key) or (instead == "undefined" and part.get(key) is not None):
            found.append(errors.forbidden_field(f"{path}.{key}", f"must be {instead} to be structural"))
    if "metadata" in (part.get("properties") or {}):
        text = "must not be specified in a nested context"
        found.append(errors.forbidden_field(f"{path}.properties[metadata]", text))


def _check_complete(
    part: dict[str, Any], node: dict[str, Any] | None, at: str, path: str, found: list[Cause], nested: bool = False
) -> None:
    """What a junction names must stand in the schema (`node`, at `at`) itself."""
    if node is None:
        found.append(errors.required(at, f"because it is defined in {path}"))
        return
    if isinstance(part.get("not"), dict):
        _check_complete(part["not"], node, at, f"{path}.not", found, True)
    for word in JUNCTIONS:
        for index, deeper in enumerate(part.get(word) or []):
            _check_complete(deeper, node, at, f"{path}.{word}[{index}]", found, True)
    if not nested:
        return
    if isinstance(part.get("items"), dict):
        _check_complete(part["items"], node.get("items"), f"{at}.items", f"{path}.items", found, True)
    for name, child in (part.get("properties") or {}).items():
        where, there = f"{at}.properties[{name}]", f"{path}.properties[{name}]"
        _check_complete(child, (node.get("properties") or {}).get(name), where, there, found, True)
