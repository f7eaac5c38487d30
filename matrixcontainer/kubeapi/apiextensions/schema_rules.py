"""Validation of a CRD version's openAPIV3Schema: that it is structural, and all other rules.

From the public documentation ("Specifying a structural schema"): every node has a type unless it is int-or-string or
preserve-unknown-fields; allOf, anyOf, oneOf and not contain no type, default, description, nullable or
additionalProperties, and name nothing that the schema itself does not define; metadata may only restrict name and
generateName. Defaults and CEL rules are checked only if there are no other errors.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from matrixcontainer.kubeapi.apiextensions.embedded_objects import check_embedded
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import Schema, compile_pattern, copy_json, prune_custom
from matrixcontainer.kubeapi.schema.validation import validate

Node = dict[str, Any]

TYPES = ["array", "boolean", "integer", "number", "object", "string"]
UNSUPPORTED = ("id", "$schema", "$ref", "additionalItems", "patternProperties", "definitions", "dependencies")
META = ("metadata", "apiVersion", "kind")
JUNCTORS = ("anyOf", "allOf", "oneOf")
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
NOT_NESTED = {  # keywords forbidden inside a junction, and what they must be instead
    **dict.fromkeys(
        ("type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations"), "empty"
    ),
    **dict.fromkeys(
        ("default", "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-map-type"), "undefined"
    ),
    **dict.fromkeys(
        (
            "nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ),
        "false",
    ),
}  # fmt: skip


@dataclass
class SchemaNode:
    """Position of a node: its path; whether it is the root, a field or an item; whether it is object metadata; and why
    it may have no default, if so."""

    path: str
    causes: list[Cause]
    level: str = "at the root"
    in_meta: bool = False
    no_default: str = field(default="", kw_only=True)

    @property
    def root(self) -> bool:
        return self.level == "at the root"

    def child(self, part: str, level: str = "for specified object fields", **more: Any) -> "SchemaNode":
        return replace(self, path=f"{self.path}.{part}", level=level, **more)

    def forbidden(self, key: str, message: str) -> None:
        self.causes.append(errors.forbidden_field(f"{self.path}.{key}", message))

    def invalid(self, key: str, value: Any, message: str) -> None:
        """Report a keyword whose value is wrong or missing."""
        where = f"{self.path}.{key}"
        self.causes.append(
            errors.required(where, message) if value in ("", None) else errors.invalid(where, value, message)
        )


def validate_schema(document: Node, path: str, with_status: bool = False) -> list[Cause]:
    """All errors in one version's openAPIV3Schema."""
    place = SchemaNode(path, [])
    if document.get("nullable"):
        place.forbidden("nullable", "nullable cannot be true at the root")
    junction = next((key for key in (*JUNCTORS, "not", "enum", "default") if document.get(key)), None)
    if with_status and junction:
        place.forbidden(junction, "must not be used at the root if the status subresource is enabled")
    _check_node(document, place)
    if causes := place.causes or validate_defaults(document, path):
        return causes
    if Schema(document).has_rules():
        from matrixcontainer.kubeapi.cel import checker

        return checker.validate_rules(document, path)
    return []


def _check_node(node: Any, place: SchemaNode) -> None:
    if not isinstance(node, dict):
        return
    for key in UNSUPPORTED:
        if node.get(key):
            place.forbidden(key, f"{key} is not supported")
    _check_type(node, place)
    _check_embedded(node, place)
    _check_pattern(node, place)
    if node.get("default") is not None and place.no_default:
        place.forbidden("default", f"must not be set {place.no_default}")
    if node.get("uniqueItems"):
        place.forbidden(
            "uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    _check_lists_and_maps(node, place)
    _check_junctions(node, node, place.path, place)
    items, extra = node.get("items"), node.get("additionalProperties")
    if isinstance(items, list):
        place.forbidden("items", "items must be a schema object and not an array")
    elif node.get("type") == "array" and items is None:
        place.invalid("items", items, "must be specified")
    if extra is not None and (place.root or (node.get("properties") and extra is not True)):
        message = (
            "must not be used at the root" if place.root else "additionalProperties and properties are mutual exclusive"
        )
        place.forbidden("additionalProperties", message)
    for name, child in (node.get("properties") or {}).items():
        meta = name in META and (place.root or bool(node.get("x-kubernetes-embedded-resource")))
        message = f"in top-level {name}" if meta and place.root else place.no_default
        _check_node(child, place.child(f"properties[{name}]", in_meta=place.in_meta or meta, no_default=message))
    _check_node(items, place.child("items", "for specified array items"))
    inside = "inside additionalProperties applying to object metadata" if place.in_meta else place.no_default
    _check_node(extra, place.child("additionalProperties", no_default=inside))


def _check_type(node: Node, place: SchemaNode) -> None:
    kind = node.get("type", "")
    free, either = (bool(node.get(f"x-kubernetes-{key}")) for key in ("preserve-unknown-fields", "int-or-string"))
    if kind and kind not in TYPES:
        place.causes.append(errors.not_supported(f"{place.path}.type", kind, TYPES))
    elif place.root and kind != "object":
        place.invalid("type", kind, "must be object at the root")
    elif not kind and not either and not free:
        place.invalid("type", kind, f"must not be empty {place.level}")
    if node.get("x-kubernetes-preserve-unknown-fields") is False:
        place.invalid("x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    if either and free:
        message = "must be false if x-kubernetes-int-or-string is true"
        place.invalid("x-kubernetes-preserve-unknown-fields", True, message)


def _check_embedded(node: Node, place: SchemaNode) -> None:
    """Check what the schema of an embedded object, or of the root, says about apiVersion, kind and metadata."""
    embedded, properties = bool(node.get("x-kubernetes-embedded-resource")), node.get("properties") or {}
    if embedded and place.in_meta:
        place.forbidden("x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if embedded and node.get("type") != "object":
        place.invalid("type", node.get("type"), "must be object if x-kubernetes-embedded-resource is true")
    if embedded and not properties and not node.get("x-kubernetes-preserve-unknown-fields"):
        message = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        place.invalid("properties", None, message)
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        specified = properties.get(name)
        if (embedded or place.root) and specified is not None and specified.get("type") != wanted:
            place.invalid(f"properties[{name}].type", specified.get("type", ""), f"must be {wanted}")
    specified = properties.get("metadata") or {}
    more = {key for key, value in specified.items() if value} - {"type", "properties", "default"}
    if place.root and (more or set(specified.get("properties") or {}) - {"name", "generateName"}):
        message = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        place.forbidden("properties[metadata]", message)


def _check_pattern(node: Node, place: SchemaNode) -> None:
    if node.get("pattern"):
        try:
            compile_pattern(node["pattern"])
        except ValueError as failure:
            place.invalid("pattern", node["pattern"], f"must be a valid regular expression, but isn't: {failure}")


# ---- junctions


def _check_junctions(part: Node, node: Node | None, at: str, place: SchemaNode) -> None:
    """allOf, anyOf, oneOf and not may only restrict what the schema itself (`node`, at `at`) defines."""
    parts = [(deeper, f"{word}[{index}]") for word in JUNCTORS for index, deeper in enumerate(part.get(word) or [])]
    if part.get("anyOf") == INT_OR_STRING:  # the expanded form of int-or-string
        parts = [(deeper, word) for deeper, word in parts if not word.startswith("anyOf")]
    for deeper, word in [*parts, (part.get("not"), "not")]:
        if isinstance(deeper, dict):
            _check_nested(deeper, node, at, place.child(word))


def _check_nested(part: Node, node: Node | None, at: str, place: SchemaNode) -> None:
    if node is None:
        place.causes.append(errors.required(at, f"because it is defined in {place.path}"))
        return
    for key, instead in NOT_NESTED.items():
        if part.get(key) or (instead == "undefined" and part.get(key) is not None):
            place.forbidden(key, f"must be {instead} to be structural")
    _check_pattern(part, place)
    _check_junctions(part, node, at, place)
    if isinstance(part.get("items"), dict):
        _check_nested(part["items"], node.get("items"), f"{at}.items", place.child("items"))
    for name, child in (part.get("properties") or {}).items():
        declared = (node.get("properties") or {}).get(name)
        _check_nested(child, declared, f"{at}.properties[{name}]", place.child(f"properties[{name}]"))
    if "metadata" in (part.get("properties") or {}):
        place.forbidden("properties[metadata]", "must not be specified in a nested context")


# ---- lists and maps


def _check_lists_and_maps(node: Node, place: SchemaNode) -> None:
    for word, wanted, allowed in (
        ("map", "object", ["atomic", "granular"]),
        ("list", "array", ["atomic", "set", "map"]),
    ):
        key = f"x-kubernetes-{word}-type"
        if (specified := node.get(key)) is None:
            continue
        if node.get("type", "") != wanted:
            place.invalid("type", node.get("type", ""), f"must be {wanted} if {key} is specified")
        if specified not in allowed:
            place.causes.append(errors.not_supported(f"{place.path}.{key}", specified, allowed))
    listed, keys = node.get("x-kubernetes-list-type"), node.get("x-kubernetes-list-map-keys") or []
    items, inner = node.get("items"), place.child("items")
    if keys and listed != "map":
        place.invalid("x-kubernetes-list-type", listed, "must be map if x-kubernetes-list-map-keys is non-empty")
    if listed == "map" and not keys:
        place.invalid("x-kubernetes-list-map-keys", None, "must not be empty if x-kubernetes-list-type is map")
    if listed not in ("set", "map") or not isinstance(items, dict):
        return
    if items.get("nullable"):
        inner.forbidden("nullable", f"cannot be nullable when x-kubernetes-list-type is {listed}")
    if listed == "set":
        message = "must be atomic as item of a list with x-kubernetes-list-type=set"
        if items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
            inner.invalid("x-kubernetes-list-type", items["x-kubernetes-list-type"], message)
        if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
            inner.invalid("x-kubernetes-map-type", items.get("x-kubernetes-map-type", "granular"), message)
    elif items.get("type") != "object":
        inner.invalid("type", items.get("type"), "must be object if parent array's x-kubernetes-list-type is map")
    else:
        _check_keys(keys, items, place, inner)


def _check_keys(keys: list[str], items: Node, place: SchemaNode, inner: SchemaNode) -> None:
    if len(set(keys)) < len(keys):
        place.invalid("x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
    for key in dict.fromkeys(keys):
        specified = (items.get("properties") or {}).get(key)
        where, reason = f"properties[{key}]", "this property is in x-kubernetes-list-map-keys, so it"
        if specified is None:
            place.invalid("x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
            continue
        if specified.get("type") in ("array", "object"):
            message = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            inner.invalid(f"{where}.type", specified["type"], message)
        if key not in (items.get("required") or []) and specified.get("default") is None:
            inner.invalid(f"{where}.default", None, f"{reason} must have a default or be a required property")
        if specified.get("nullable"):
            inner.forbidden(f"{where}.nullable", f"{reason} cannot be nullable")


# ---- defaults


def validate_defaults(node: Node, path: str) -> list[Cause]:
    """Errors for defaults that are invalid for their schema or have unknown fields."""
    causes: list[Cause] = []
    if node.get("default") is not None:
        causes += _check_default(node["default"], Schema(node), f"{path}.default")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            causes += validate_defaults(node[key], f"{path}.{key}")
    for name, child in (node.get("properties") or {}).items():
        causes += validate_defaults(child, f"{path}.properties[{name}]")
    return causes


def _check_default(value: Any, schema: Schema, where: str) -> list[Cause]:
    unknown: list[str] = []
    prune_custom(copy_json(value), schema, "", unknown, root=schema.embedded)
    if unknown:
        return [errors.invalid(where, value, "must not have unknown fields")]
    causes = check_embedded(value, schema, where) or validate(value, schema, below=where)
    if not causes and schema.has_rules():
        from matrixcontainer.kubeapi.cel import environment

        found = environment.check(schema, value, None)
        causes = [replace(cause, field=f"{where}.{cause.field}".rstrip(".")) for cause in found]
    return causes
