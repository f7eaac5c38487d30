"""Whether the schema of a CRD is structural, and everything that makes it not so.

Rules of the public documentation ("Specifying a structural schema"): every node has a type unless it says
int-or-string or preserve-unknown-fields; inside allOf, anyOf, oneOf and not there is no type, default, description,
nullable or additionalProperties; metadata may only restrict name and generateName; defaults fit the schema they stand
in.
"""

from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.schema import Schema, compile_pattern
from matrixcontainer.kubeapi.validation import type_of, validate

TYPES = ("object", "array", "string", "integer", "number", "boolean")
JUNCTIONS = ("allOf", "anyOf", "oneOf")
NOT_IN_JUNCTIONS = ("type", "default", "description", "nullable", "additionalProperties", "title")
FORBIDDEN = ("$ref", "definitions", "dependencies", "patternProperties", "id", "$schema", "additionalItems")


SCHEMA, SCHEMAS, BY_NAME, TEXT, TEXTS, FLAG, COUNT, NUMBER, ANYTHING = range(9)

SHAPES: dict[str, int] = {
    **dict.fromkeys(("items", "not"), SCHEMA),
    **dict.fromkeys(JUNCTIONS, SCHEMAS),
    "properties": BY_NAME,
    **dict.fromkeys(
        ("type", "format", "title", "description", "pattern", "x-kubernetes-list-type", "x-kubernetes-map-type"), TEXT
    ),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), TEXTS),
    **dict.fromkeys(
        (
            "nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum", "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
        ),
        FLAG,
    ),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNT
    ),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), NUMBER),
}  # fmt: skip


def demand_shape(node: Any, path: str) -> None:
    """Raise 400 when a schema is not even shaped like one, as decoding it into its type would; nulls are dropped."""
    if not isinstance(node, dict):
        raise _misshapen(path, node, "an object")
    for key in [key for key, value in node.items() if value is None and key != "default"]:
        del node[key]
    for key, value in node.items():
        where = f"{path}.{key}"
        shape = SHAPES.get(key, ANYTHING)
        if shape == SCHEMA or (key == "additionalProperties" and not isinstance(value, bool)):
            demand_shape(value, where)
        elif shape == SCHEMAS:
            for index, part in enumerate(_demand(value, list, where, "a list")):
                demand_shape(part, f"{where}[{index}]")
        elif shape == BY_NAME:
            for name, child in _demand(value, dict, where, "an object").items():
                demand_shape(child, f"{where}[{name}]")
        elif shape == TEXT:
            _demand(value, str, where, "text")
        elif shape == TEXTS:
            for word in _demand(value, list, where, "a list"):
                _demand(word, str, where, "a list of texts")
        elif shape == FLAG:
            _demand(value, bool, where, "true or false")
        elif shape in (COUNT, NUMBER):
            if isinstance(value, bool) or not isinstance(value, int if shape == COUNT else (int, float)):
                raise _misshapen(where, value, "a number")
        elif key == "enum":
            _demand(value, list, where, "a list")
        elif key == "x-kubernetes-validations":
            for rule in _demand(value, list, where, "a list"):
                for word, text in _demand(rule, dict, where, "a list of objects").items():
                    _demand(text, bool if word == "optionalOldSelf" else str, f"{where}.{word}", "text")


def _demand(value: Any, kind: type, path: str, words: str) -> Any:
    if not isinstance(value, kind):
        raise _misshapen(path, value, words)
    return value


def _misshapen(path: str, value: Any, words: str) -> errors.ApiError:
    return errors.bad_request(
        'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
        f"json: cannot unmarshal {type_of(value)} into field {path}, which is {words}"
    )


def check_schema(document: dict[str, Any], path: str) -> list[Cause]:
    """All mistakes of one version's openAPIV3Schema."""
    found: list[Cause] = []
    if not isinstance(document, dict):
        return [errors.invalid(path, document, "must be an object")]
    _check_node(document, path, found, root=True)
    if document.get("type") != "object":
        found.append(errors.invalid(f"{path}.type", document.get("type", ""), "must be object at the root"))
    if not found:
        _check_defaults(document, path, found)
    if not found and Schema(document).has_rules():
        from matrixcontainer.kubeapi import cel_check

        found += cel_check.check_rules(document, path)
    return found


def _check_node(node: dict[str, Any], path: str, found: list[Cause], root: bool = False) -> None:
    kind = node.get("type")
    free = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
    if not kind:
        if not free:
            found.append(errors.required(f"{path}.type", "must not be empty for specified object fields"))
    elif kind not in TYPES:
        found.append(errors.not_supported(f"{path}.type", kind, sorted(TYPES)))
    found += [errors.forbidden_field(f"{path}.{key}", f"{key} is not supported") for key in FORBIDDEN if node.get(key)]
    if node.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(errors.forbidden_field(f"{path}.uniqueItems", text))
    if node.get("pattern"):
        try:
            compile_pattern(node["pattern"])
        except ValueError as failure:
            found.append(
                errors.invalid(f"{path}.pattern", node["pattern"], f"must be a valid regular expression: {failure}")
            )
    if node.get("properties") and node.get("additionalProperties"):
        found.append(
            errors.forbidden_field(
                f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
            )
        )
    if kind == "array":
        if not isinstance(node.get("items"), dict):
            found.append(errors.required(f"{path}.items", "must be specified"))
        _check_list_type(node, path, found)
    if root and isinstance(meta := (node.get("properties") or {}).get("metadata"), dict):
        extra = set(meta.get("properties") or {}) - {"name", "generateName"}
        if extra:
            text = f"must not specify anything other than name and generateName, but metadata is implicitly specified: {sorted(extra)}"  # noqa: E501
            found.append(errors.forbidden_field(f"{path}.properties[metadata]", text))
    for name, child in (node.get("properties") or {}).items():
        _check_node(child, f"{path}.properties[{name}]", found)
    if isinstance(node.get("items"), dict):
        _check_node(node["items"], f"{path}.items", found)
    if isinstance(node.get("additionalProperties"), dict):
        _check_node(node["additionalProperties"], f"{path}.additionalProperties", found)
    for word in JUNCTIONS:
        for index, part in enumerate(node.get(word) or []):
            _check_junction(part, node, f"{path}.{word}[{index}]", found)
    if isinstance(node.get("not"), dict):
        _check_junction(node["not"], node, f"{path}.not", found)


def _check_list_type(node: dict[str, Any], path: str, found: list[Cause]) -> None:
    list_type = node.get("x-kubernetes-list-type")
    keys = node.get("x-kubernetes-list-map-keys")
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        found.append(errors.not_supported(f"{path}.x-kubernetes-list-type", list_type, ["atomic", "set", "map"]))
    if list_type == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            found.append(errors.required(f"{path}.x-kubernetes-list-map-keys", text))
        items = node.get("items") or {}
        for key in keys or []:
            if key not in (items.get("properties") or {}):
                text = "entries must all be names of item properties"
                found.append(errors.invalid(f"{path}.x-kubernetes-list-map-keys", keys, text))
            elif key not in (items.get("required") or []) and "default" not in items["properties"][key]:
                where = f"{path}.items.properties[{key}].default"
                found.append(
                    errors.required(
                        where,
                        "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",  # noqa: E501
                    )
                )
    elif keys:
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(errors.invalid(f"{path}.x-kubernetes-list-type", list_type or "", text))


def _check_junction(part: dict[str, Any], owner: dict[str, Any], path: str, found: list[Cause]) -> None:
    int_or_string = owner.get("x-kubernetes-int-or-string")
    found += [
        errors.forbidden_field(f"{path}.{key}", "must be empty to be structural")
        for key in NOT_IN_JUNCTIONS
        if key in part and not (key == "type" and int_or_string)
    ]
    found += [
        errors.forbidden_field(f"{path}.{key}", "must be false to be structural")
        for key in part
        if key.startswith("x-kubernetes-") and key != "x-kubernetes-validations"
    ]
    for name, child in (part.get("properties") or {}).items():
        _check_junction(child, {}, f"{path}.properties[{name}]", found)
        if name not in (owner.get("properties") or {}) and not owner.get("additionalProperties") and owner.get("type"):
            where = path.split(".allOf[")[0].split(".anyOf[")[0].split(".oneOf[")[0].split(".not")[0]
            text = f"because it is defined in {path}.properties[{name}]"
            found.append(errors.required(f"{where}.properties[{name}]", text))
    if isinstance(part.get("items"), dict):
        _check_junction(part["items"], {}, f"{path}.items", found)
    for word in JUNCTIONS:
        for index, deeper in enumerate(part.get(word) or []):
            _check_junction(deeper, owner, f"{path}.{word}[{index}]", found)


def _check_defaults(node: dict[str, Any], path: str, found: list[Cause]) -> None:
    if "default" in node:
        mistakes = validate(node["default"], Schema(node), f"{path}.default")
        found += mistakes
    for name, child in (node.get("properties") or {}).items():
        _check_defaults(child, f"{path}.properties[{name}]", found)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            _check_defaults(node[key], f"{path}.{key}", found)
