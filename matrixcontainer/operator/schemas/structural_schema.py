"""Convert a wire model class to the structural schema that a CRD requires, so that each type is defined only once.

Kubernetes accepts a strict subset of JSON Schema: no references, no titles, booleans for exclusive bounds, `nullable`
instead of a union with null. The schema does not reject unknown fields: the API server prunes or rejects them.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI v3 structural schema of a wire class."""
    document = model.model_json_schema(by_alias=True)
    return _structural(document, document.get("$defs", {}))


def shown_schema(model: type[BaseModel], *fields: str) -> dict[str, Any]:
    """Status properties for `fields` of a view, or for all of them. Only types, enums and descriptions are kept: a
    status must never be rejected for its values."""
    found = structural_schema(model)["properties"]
    return {name: _unconstrained(found[name]) for name in fields or found}


def _unconstrained(node: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: node[key] for key in ("type", "enum", "description") if key in node}
    if "items" in node:
        kept["items"] = _unconstrained(node["items"])
    if "additionalProperties" in node:
        kept["additionalProperties"] = _unconstrained(node["additionalProperties"])
    if "properties" in node:
        kept["properties"] = {name: _unconstrained(child) for name, child in node["properties"].items()}
    return kept


def _structural(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in node:
        branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        node = {**branches[0], **rest}
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[-1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("title", "$defs", "propertyNames", "examples"):
            continue
        if key == "patternProperties":  # a structural schema cannot restrict the names
            (key, value) = "additionalProperties", next(iter(value.values()))
        if key == "additionalProperties":
            if isinstance(value, dict):
                result[key] = _structural(value, definitions)
            continue
        if key == "properties":
            result[key] = {name: _structural(child, definitions) for name, child in value.items()}
        elif key == "items":
            result[key] = _structural(value, definitions)
        elif key == "exclusiveMinimum":
            result |= {"minimum": value, "exclusiveMinimum": True}
        elif key == "exclusiveMaximum":
            result |= {"maximum": value, "exclusiveMaximum": True}
        elif key == "default":
            if value is not None:
                result[key] = _without_nulls(value)
        elif key == "const":
            result["enum"] = [value]
        elif key == "description":
            result[key] = " ".join(str(value).split())
        else:
            result[key] = value
    return result


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    return value
