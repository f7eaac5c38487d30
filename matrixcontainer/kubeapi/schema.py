"""Structural schemas: what an object may hold, which defaults it takes, and everything that is wrong with it.

A `Schema` is compiled once from the OpenAPI v3 form of a CRD version or from the table of built-in types, and then
asked three things in this order: `prune` (drop and report unknown fields), `default`, `validate`. All mistakes of an
object are returned together, with the field paths, reasons and wording that clients of a Kubernetes API know.
Structural CRD schemas follow the public "Extend the API" documentation; wording follows its validation errors.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import ABSENT, Cause
from matrixcontainer.kubeapi.formats import FORMATS

try:
    import re2
except ImportError:  # the standard engine differs in corner cases and can be slow on hostile patterns
    re2 = None


def compile_pattern(pattern: str) -> Callable[[str], Any]:
    """A search function with the semantics of Go's RE2 (search, not full match); raises ValueError on a bad pattern."""
    try:
        return (re2 or re).compile(pattern).search
    except Exception as failure:
        raise ValueError(str(failure)) from failure


class Schema:
    """One node of a structural schema; children are Schemas too."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "default",
        "description",
        "embedded",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "format",
        "int_or_string",
        "items",
        "list_keys",
        "list_type",
        "map_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "merge_key",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "negated",
        "nullable",
        "one_of",
        "pattern",
        "pattern_text",
        "preserve",
        "properties",
        "ref",
        "required",
        "rules",
        "strategy",
        "type",
        "unique_items",
        "with_rules",
    )

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        d = document or {}
        self.type: str = d.get("type", "")
        self.properties: dict[str, Schema] = {k: Schema(v) for k, v in (d.get("properties") or {}).items()}
        self.required: list[str] = d.get("required") or []
        extra = d.get("additionalProperties")
        self.additional: Schema | bool | None = Schema(extra) if isinstance(extra, dict) else extra
        self.items: Schema | None = Schema(d["items"]) if isinstance(d.get("items"), dict) else None
        self.preserve: bool = bool(d.get("x-kubernetes-preserve-unknown-fields"))
        self.int_or_string: bool = bool(d.get("x-kubernetes-int-or-string"))
        self.embedded: bool = bool(d.get("x-kubernetes-embedded-resource"))
        self.nullable: bool = bool(d.get("nullable"))
        self.default: Any = d.get("default", ABSENT)
        self.enum: list[Any] | None = d.get("enum")
        self.format: str = d.get("format", "")
        self.minimum, self.maximum = d.get("minimum"), d.get("maximum")
        self.exclusive_minimum = bool(d.get("exclusiveMinimum"))
        self.exclusive_maximum = bool(d.get("exclusiveMaximum"))
        self.multiple_of = d.get("multipleOf")
        self.min_length, self.max_length = d.get("minLength"), d.get("maxLength")
        self.min_items, self.max_items = d.get("minItems"), d.get("maxItems")
        self.min_properties, self.max_properties = d.get("minProperties"), d.get("maxProperties")
        self.unique_items = bool(d.get("uniqueItems"))
        self.pattern_text: str = d.get("pattern", "")
        self.pattern = compile_pattern(self.pattern_text) if self.pattern_text else None
        self.list_type: str = d.get("x-kubernetes-list-type", "")
        self.list_keys: list[str] = d.get("x-kubernetes-list-map-keys") or []
        self.map_type: str = d.get("x-kubernetes-map-type", "")
        self.merge_key: str = d.get("x-kubernetes-patch-merge-key", "")
        self.strategy: list[str] = [w for w in d.get("x-kubernetes-patch-strategy", "").split(",") if w]
        self.rules: list[dict[str, Any]] = d.get("x-kubernetes-validations") or []
        self.all_of = [Schema(s) for s in d.get("allOf") or []]
        self.any_of = [Schema(s) for s in d.get("anyOf") or []]
        self.one_of = [Schema(s) for s in d.get("oneOf") or []]
        self.negated: Schema | None = Schema(d["not"]) if isinstance(d.get("not"), dict) else None
        self.description: str = d.get("description", "")
        self.ref = ""
        self.with_rules: bool | None = None

    def child(self, key: str) -> "Schema | None":
        """The schema of an object's field, from its properties or its additional ones."""
        if (found := self.properties.get(key)) is not None:
            return found
        return self.additional if isinstance(self.additional, Schema) else None

    def has_rules(self) -> bool:
        """Whether this node or any below it has validation rules; looked up once."""
        if self.with_rules is None:
            self.with_rules = any(node.rules for node in walk(self))
        return self.with_rules


def walk(schema: Schema) -> Iterator[Schema]:
    """Every structural node, itself first."""
    yield schema
    for child in schema.properties.values():
        yield from walk(child)
    if isinstance(schema.additional, Schema):
        yield from walk(schema.additional)
    if schema.items is not None:
        yield from walk(schema.items)


def join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


# ---- prune


def prune(value: Any, schema: Schema, path: str = "", unknown: list[str] | None = None, root: bool = False) -> Any:
    """Drop, in place, every field the schema does not know; their paths are appended to `unknown`."""
    if isinstance(value, dict):
        exempt = {"apiVersion", "kind", "metadata"} if root or schema.embedded else ()
        for key in list(value):
            if key in exempt:
                continue
            if key in schema.properties:
                prune(value[key], schema.properties[key], join(path, key), unknown)
            elif isinstance(schema.additional, Schema):
                prune(value[key], schema.additional, join(path, key), unknown)
            elif schema.additional is True or schema.preserve:
                continue
            elif schema.type == "object" or schema.properties or root:
                del value[key]
                if unknown is not None:
                    unknown.append(join(path, key))
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            prune(item, schema.items, f"{path}[{index}]", unknown)
    return value


# ---- default


def copy_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: copy_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [copy_json(v) for v in value]
    return value


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Fill in missing fields in place; a null where null is not allowed and a default exists counts as missing."""
    if isinstance(value, dict):
        for key, child in schema.properties.items():
            if child.default is not ABSENT and (
                key not in value or (value[key] is None and not child.nullable and child.default is not None)
            ):
                value[key] = copy_json(child.default)
            if value.get(key) is not None:
                apply_defaults(value[key], child)
        if isinstance(schema.additional, Schema):
            for key, item in value.items():
                if key not in schema.properties:
                    apply_defaults(item, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)
    return value


def drop_nulls(value: Any, schema: Schema) -> Any:
    """Remove nulls the schema does not allow and does not default, as decoding into a typed field would."""
    if isinstance(value, dict):
        for key in list(value):
            child = schema.child(key)
            if value[key] is None and child is not None and not child.nullable and not child.preserve:
                if child.type or child.int_or_string:
                    del value[key]
            elif child is not None:
                drop_nulls(value[key], child)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            drop_nulls(item, schema.items)
    return value


def spell_quantities(value: Any, schema: Schema) -> Any:
    """Amounts given as numbers, as the text a typed server would store; returns the value, changed in place."""
    if schema.format == "quantity" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None and item is not None:
                value[key] = spell_quantities(item, child)
    elif isinstance(value, list) and schema.items is not None:
        value[:] = [spell_quantities(item, schema.items) for item in value]
    return value


# ---- validate


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def fits_type(value: Any, wanted: str) -> bool:
    actual = type_of(value)
    if actual == wanted:
        return True
    if wanted == "number":
        return actual == "integer"
    return wanted == "integer" and actual == "number" and float(value).is_integer()


def validate(value: Any, schema: Schema, path: str = "", old: Any = ABSENT) -> list[Cause]:
    """Every mistake in `value`; an unchanged part of `old` is not judged again (ratcheting)."""
    found: list[Cause] = []
    _validate(value, schema, path, old, found)
    return found


def _validate(value: Any, schema: Schema, path: str, old: Any, found: list[Cause]) -> None:
    if old is not ABSENT and old == value and type(old) is type(value):
        return
    if value is None:
        if schema.nullable or not (schema.type or schema.int_or_string):
            return
        found.append(errors.type_invalid(path, "null", f'{path} in body must be of type {schema.type}: "null"'))
        return
    if schema.int_or_string:
        if type_of(value) not in ("integer", "string"):
            kind = type_of(value)
            found.append(errors.type_invalid(path, kind, f'{path} in body must be of type integer,string: "{kind}"'))
            return
    elif schema.type and not fits_type(value, schema.type):
        kind = type_of(value)
        found.append(errors.type_invalid(path, kind, f'{path} in body must be of type {schema.type}: "{kind}"'))
        return
    if schema.enum is not None and not any(value == word and type(value) is type(word) for word in schema.enum):
        found.append(errors.not_supported(path, value, schema.enum))
    if isinstance(value, str):
        _validate_string(value, schema, path, found)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _validate_number(value, schema, path, found)
    elif isinstance(value, list):
        _validate_list(value, schema, path, old, found)
    elif isinstance(value, dict):
        _validate_object(value, schema, path, old, found)
    _validate_junctions(value, schema, path, found)


def _validate_string(value: str, schema: Schema, path: str, found: list[Cause]) -> None:
    if schema.max_length is not None and len(value) > schema.max_length:
        found.append(errors.too_long(path, schema.max_length))
    if schema.min_length is not None and len(value) < schema.min_length:
        found.append(errors.invalid(path, value, f"{path} in body should be at least {schema.min_length} chars long"))
    if schema.pattern is not None and not schema.pattern(value):
        found.append(errors.invalid(path, value, f"{path} in body should match '{schema.pattern_text}'"))
    check = FORMATS.get(schema.format)
    if check is not None and not check(value):
        detail = f"{path} in body must be of type {schema.format}: {errors.shown(value)}"
        found.append(errors.type_invalid(path, value, detail))


RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def _validate_number(value: float, schema: Schema, path: str, found: list[Cause]) -> None:
    low, high = schema.minimum, schema.maximum
    if low is not None and (value <= low if schema.exclusive_minimum else value < low):
        words = "greater than" if schema.exclusive_minimum else "greater than or equal to"
        found.append(errors.invalid(path, value, f"{path} in body should be {words} {low}"))
    if high is not None and (value >= high if schema.exclusive_maximum else value > high):
        words = "less than" if schema.exclusive_maximum else "less than or equal to"
        found.append(errors.invalid(path, value, f"{path} in body should be {words} {high}"))
    if schema.multiple_of and not _is_multiple(value, schema.multiple_of):
        found.append(errors.invalid(path, value, f"{path} in body should be a multiple of {schema.multiple_of}"))
    if schema.format in RANGES and schema.type == "integer":
        least, most = RANGES[schema.format]
        if not least <= value <= most:
            found.append(errors.invalid(path, value, f"{path} in body must be of type {schema.format}: {value}"))


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = value / step
    return math.isclose(ratio, round(ratio), rel_tol=1e-9)


def _validate_list(value: list[Any], schema: Schema, path: str, old: Any, found: list[Cause]) -> None:
    if schema.max_items is not None and len(value) > schema.max_items:
        found.append(errors.too_many(path, len(value), schema.max_items))
    if schema.min_items is not None and len(value) < schema.min_items:
        detail = f"{path} in body should have at least {schema.min_items} items"
        found.append(errors.invalid(path, len(value), detail))
    if schema.unique_items and len({errors.shown(v) for v in value}) < len(value):
        found.append(errors.invalid(path, value, f"{path} in body shouldn't contain duplicates"))
    if schema.list_type in ("set", "map"):
        _find_duplicates(value, schema, path, found)
    if schema.items is None:
        return
    before = correlate_list(schema, old) if isinstance(old, list) else None
    for index, item in enumerate(value):
        earlier = before(index, item) if before is not None else ABSENT
        _validate(item, schema.items, f"{path}[{index}]", earlier, found)


def correlate_list(schema: Schema, old: list[Any]) -> Callable[[int, Any], Any]:
    """How an item finds its former self: by key in map lists; by place for ratcheting only where that is all there is."""  # noqa: E501
    if schema.list_type == "map":
        by_key = {list_key(schema, item): item for item in old if isinstance(item, dict)}
        return lambda index, item: by_key.get(list_key(schema, item), ABSENT) if isinstance(item, dict) else ABSENT
    return lambda index, item: ABSENT


def list_key(schema: Schema, item: dict[str, Any]) -> str:
    """The identity of an item of a map list, defaults of key fields included."""
    parts = []
    for key in schema.list_keys:
        value = item.get(key, ABSENT)
        if value is ABSENT and schema.items is not None and key in schema.items.properties:
            value = schema.items.properties[key].default
        parts.append(None if value is ABSENT else value)
    return errors.shown(parts)


def _find_duplicates(value: list[Any], schema: Schema, path: str, found: list[Cause]) -> None:
    seen = set()
    for index, item in enumerate(value):
        if schema.list_type == "set":
            identity, shown = errors.shown(item), item
        elif isinstance(item, dict):
            identity = list_key(schema, item)
            shown = {key: item.get(key) for key in schema.list_keys}
        else:
            continue
        if identity in seen:
            found.append(errors.duplicate(f"{path}[{index}]", shown))
        seen.add(identity)


def _validate_object(value: dict[str, Any], schema: Schema, path: str, old: Any, found: list[Cause]) -> None:
    if schema.max_properties is not None and len(value) > schema.max_properties:
        detail = f"{path} in body should have at most {schema.max_properties} properties"
        found.append(errors.invalid(path, value, detail))
    if schema.min_properties is not None and len(value) < schema.min_properties:
        detail = f"{path} in body should have at least {schema.min_properties} properties"
        found.append(errors.invalid(path, value, detail))
    found.extend(errors.required(join(path, key)) for key in schema.required if key not in value)
    if schema.embedded:
        found.extend(
            errors.required(join(path, key), "must not be empty")
            for key in ("apiVersion", "kind")
            if not value.get(key)
        )
    for key, item in value.items():
        child = schema.child(key)
        if child is not None:
            earlier = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
            _validate(item, child, join(path, key), earlier, found)


def _validate_junctions(value: Any, schema: Schema, path: str, found: list[Cause]) -> None:
    for part in schema.all_of:
        _validate(value, part, path, ABSENT, found)
    if (
        schema.any_of
        and not schema.int_or_string
        and not any(not validate(value, part, path) for part in schema.any_of)
    ):
        found.append(errors.invalid(path, value, f'"{path}" must validate at least one schema (anyOf)'))
    if schema.one_of:
        fits = sum(not validate(value, part, path) for part in schema.one_of)
        if fits != 1:
            seen = "Found none valid" if fits == 0 else f"Found {fits} valid alternatives"
            detail = f'"{path}" must validate one and only one schema (oneOf). {seen}'
            found.append(errors.invalid(path, value, detail))
    if schema.negated is not None and not validate(value, schema.negated, path):
        found.append(errors.invalid(path, value, f'"{path}" must not validate the schema (not)'))
