"""The openAPIV3Schema of a CRD version: whether it is shaped like one, and everything that is wrong with it.

A schema that is not structural is refused as such first (structural_rules.py); of a structural one the defaults are
validated; keywords that contradict each other are reported in any case; rules are checked only when nothing else is
wrong.
"""

from typing import Any

from matrixcontainer.kubeapi.apiextensions.embedded_objects import check_embedded
from matrixcontainer.kubeapi.apiextensions.structural_rules import JUNCTIONS, check_structure, unsupported
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import Schema, copy_json, prune_custom
from matrixcontainer.kubeapi.schema.validation import validate

TYPES = ["array", "boolean", "integer", "number", "object", "string"]
FORBIDDEN = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
META = ("metadata", "apiVersion", "kind")
WITH_STATUS = (  # what a root may say when the status has an endpoint of its own, in Go's and in the wire's words
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)


def check_schema(document: dict[str, Any], path: str, with_status: bool = False) -> list[Cause]:
    """All mistakes of one version's openAPIV3Schema."""
    found: list[Cause] = []
    if with_status:
        found += _check_root_with_status(document, path)
    if document.get("nullable"):
        found.append(errors.forbidden_field(f"{path}.nullable", "nullable cannot be true at the root"))
    refused = unsupported(document)
    if not refused:
        found += check_structure(document, path) or check_defaults(document, path)
    _check_keywords(document, path, found, root=True)
    if refused and not found:
        found.append(errors.invalid(path, "", refused))
    if not found and Schema(document).has_rules():
        from matrixcontainer.kubeapi.cel import checker

        found += checker.check_rules(document, path)
    return found


def _check_root_with_status(document: dict[str, Any], path: str) -> list[Cause]:
    if document.get("type") != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        return [errors.invalid(f"{path}.type", document.get("type", ""), text)]
    allowed = {word[0].lower() + word[1:] for word in WITH_STATUS.split()}
    allowed |= {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
    if any(value and key not in allowed for key, value in document.items()):
        text = f"only [{WITH_STATUS}] fields are allowed at the root of the schema if the status subresource is enabled"
        return [errors.invalid(path, errors.as_go(document), text)]
    return []


# ---- keywords


def _check_keywords(
    node: Any, path: str, found: list[Cause], root: bool = False, no_default: str = "", in_meta: bool = False
) -> None:
    """What no schema may say, structural or not; `no_default` is why a default may not stand here."""
    if not isinstance(node, dict):
        return
    _check_standard(node, path, found, no_default, in_meta)
    if node.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(errors.forbidden_field(f"{path}.uniqueItems", text))
    properties, extra = node.get("properties") or {}, node.get("additionalProperties")
    if extra is not None:
        if properties and extra is not True:
            text = "additionalProperties and properties are mutual exclusive"
            found.append(errors.forbidden_field(f"{path}.additionalProperties", text))
        why = "inside additionalProperties applying to object metadata" if in_meta else no_default
        _check_keywords(extra, f"{path}.additionalProperties", found, no_default=why, in_meta=in_meta)
    for name, child in properties.items():
        meta = (root or bool(node.get("x-kubernetes-embedded-resource"))) and name in META
        why = f"in top-level {name}" if meta and root else no_default
        _check_keywords(child, f"{path}.properties[{name}]", found, no_default=why, in_meta=in_meta or meta)
    _check_keywords(node.get("not"), f"{path}.not", found, no_default=no_default, in_meta=in_meta)
    for word in JUNCTIONS:
        for index, part in enumerate(node.get(word) or []):
            _check_keywords(part, f"{path}.{word}[{index}]", found, no_default=no_default, in_meta=in_meta)
    items = node.get("items")
    for part, where in (
        [(part, f"{path}.items[{index}]") for index, part in enumerate(items)]
        if isinstance(items, list)
        else [(items, f"{path}.items")]
    ):
        _check_keywords(part, where, found, no_default=no_default, in_meta=in_meta)
    _check_lists_and_maps(node, path, found)


def _check_standard(node: dict[str, Any], path: str, found: list[Cause], no_default: str, in_meta: bool) -> None:
    kind = node.get("type", "")
    if kind and kind not in TYPES:
        found.append(errors.not_supported(f"{path}.type", kind, TYPES))
    if node.get("default") is not None and no_default:
        found.append(errors.forbidden_field(f"{path}.default", f"must not be set {no_default}"))
    found += [
        errors.forbidden_field(f"{path}.{key}", f"{key} is not supported")
        for key in FORBIDDEN
        if node.get(key) or (key in ("additionalItems", "dependencies", "$ref") and node.get(key) is not None)
    ]
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        found.append(errors.forbidden_field(f"{path}.type", text))
    if isinstance(node.get("items"), list) and node["items"]:
        found.append(errors.forbidden_field(f"{path}.items", "items must be a schema object and not an array"))
    if in_meta and node.get("x-kubernetes-embedded-resource"):
        text = "must not be used inside of resource meta"
        found.append(errors.forbidden_field(f"{path}.x-kubernetes-embedded-resource", text))


def _check_lists_and_maps(node: dict[str, Any], path: str, found: list[Cause]) -> None:
    kind = node.get("type", "")
    if node.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        found.append(errors.invalid(where, False, "must be true or undefined"))
    for word, wanted, allowed in (
        ("map", "object", ["atomic", "granular"]),
        ("list", "array", ["atomic", "set", "map"]),
    ):
        reported = node.get(f"x-kubernetes-{word}-type")
        if reported is None:
            continue
        if kind != wanted:
            text = f"must be {wanted} if x-kubernetes-{word}-type is specified"
            found.append(errors.invalid(f"{path}.type", kind, text) if kind else errors.required(f"{path}.type", text))
        elif reported == "set" and isinstance(node.get("items"), dict):
            _check_set_items(node["items"], f"{path}.items", found)
        if reported not in allowed:
            found.append(errors.not_supported(f"{path}.x-kubernetes-{word}-type", reported, allowed))
    _check_map_list(node, path, found)


def _check_set_items(items: dict[str, Any], path: str, found: list[Cause]) -> None:
    list_type, map_type = items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type")
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    shown = "null" if list_type is None else list_type
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        found.append(errors.invalid(f"{path}.x-kubernetes-list-type", shown, text))
    if items.get("type") == "object" and map_type != "atomic":
        found.append(errors.invalid(f"{path}.x-kubernetes-map-type", shown, text))


def _check_map_list(node: dict[str, Any], path: str, found: list[Cause]) -> None:
    reported, keys, items = (
        node.get("x-kubernetes-list-type"),
        node.get("x-kubernetes-list-map-keys"),
        node.get("items"),
    )
    if keys and reported != "map":
        text, where = "must be map if x-kubernetes-list-map-keys is non-empty", f"{path}.x-kubernetes-list-type"
        found.append(errors.required(where, text) if reported is None else errors.invalid(where, reported, text))
    where = f"{path}.x-kubernetes-list-map-keys"
    if reported == "map":
        if not keys:
            found.append(errors.required(where, "must not be empty if x-kubernetes-list-type is map"))
        if items is None:
            found.append(errors.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
        elif isinstance(items, dict) and items.get("type") != "object":
            text = "must be object if parent array's x-kubernetes-list-type is map"
            found.append(errors.invalid(f"{path}.items.type", items.get("type", ""), text))
        elif isinstance(items, dict):
            _check_keys(keys or [], items, where, f"{path}.items", found)
    if reported in ("set", "map") and isinstance(items, dict):
        if items.get("nullable"):
            text = f"cannot be nullable when x-kubernetes-list-type is {reported}"
            found.append(errors.forbidden_field(f"{path}.items.nullable", text))
        for key in (keys or []) if reported == "map" else []:
            _check_key(key, items, f"{path}.items", found)


def _check_keys(keys: list[str], items: dict[str, Any], where: str, path: str, found: list[Cause]) -> None:
    shown = errors.go_list(keys)
    for place, key in enumerate(keys):
        field = (items.get("properties") or {}).get(key)
        if field is None:
            found.append(errors.invalid(where, shown, "entries must all be names of item properties"))
        elif field.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(errors.invalid(f"{path}.properties[{key}].type", items.get("type", ""), text))
        if key in keys[:place]:
            found.append(errors.invalid(where, shown, "must not contain duplicate entries"))


def _check_key(key: str, items: dict[str, Any], path: str, found: list[Cause]) -> None:
    field = (items.get("properties") or {}).get(key)
    if field is None:
        return
    output = "this property is in x-kubernetes-list-map-keys, so it"
    if key not in (items.get("required") or []) and field.get("default") is None:
        text = f"{output} must have a default or be a required property"
        found.append(errors.required(f"{path}.properties[{key}].default", text))
    if field.get("nullable"):
        found.append(errors.forbidden_field(f"{path}.properties[{key}].nullable", f"{output} cannot be nullable"))


# ---- defaults


def check_defaults(node: dict[str, Any], path: str) -> list[Cause]:
    """Defaults that do not fit the schema they stand in, or say more than it knows."""
    found: list[Cause] = []
    if node.get("default") is not None:
        found += _check_default(node["default"], Schema(node), f"{path}.default")
    if isinstance(node.get("items"), dict):
        found += check_defaults(node["items"], f"{path}.items")
    for name, child in (node.get("properties") or {}).items():
        found += check_defaults(child, f"{path}.properties[{name}]")
    return found


def _check_default(value: Any, schema: Schema, where: str) -> list[Cause]:
    unknown: list[str] = []
    prune_custom(copy_json(value), schema, "", unknown, root=schema.embedded)
    found: list[Cause] = []
    if unknown:
        found.append(errors.invalid(where, errors.as_go(value), "must not have unknown fields"))
    mistakes = check_embedded(value, schema, where) or validate(value, schema, below=where)
    if not mistakes and schema.has_rules():
        from matrixcontainer.kubeapi.cel import environment

        mistakes = [_placed(cause, where) for cause in environment.check(schema, value, None)]
    return found + mistakes


def _placed(cause: Cause, where: str) -> Cause:
    dot = "" if not cause.field or cause.field.startswith("[") else "."
    return Cause(cause.reason, cause.message, f"{where}{dot}{cause.field}")
