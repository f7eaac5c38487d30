"""Structural schemas: pruning, defaults, and comparison and copying of JSON values.

A `Schema` is compiled once, from a CRD version's OpenAPI v3 schema or from the table of built-in types, and then used
in this order: `prune` (drop and report unknown fields), `apply_defaults`, and validation (validation.py). Structural
CRD schemas follow the public "Extend the API" documentation.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson
import re2

from matrixcontainer.kubeapi.meta.errors import ABSENT, Cause

# (value, its path, its old value, errors to append to) -> number of passed checks
Validator = Callable[[Any, str, Any, list[Cause]], int]


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Compile an RE2 pattern, whose search is linear in the text. Raises ValueError for an invalid pattern."""
    try:
        return re2.compile(pattern)
    except re2.error as failure:
        (why,) = failure.args
        raise ValueError(f"error parsing regexp: {why.decode() if isinstance(why, bytes) else why}") from failure


class Schema:
    """One node of a structural schema; children are Schemas too."""

    __slots__ = (
        "additional", "all_of", "any_of", "default", "defaulted", "description", "embedded", "enum",
        "exclusive_maximum", "exclusive_minimum", "format", "int_or_string", "items", "list_keys", "list_type",
        "map_type", "max_items", "max_length", "max_properties", "maximum", "merge_key", "min_items", "min_length",
        "min_properties", "minimum", "multiple_of", "negated", "nullable", "one_of", "pattern", "pattern_text",
        "preserve", "properties", "ref", "required", "rules", "strategy", "type", "unique_items", "validator",
        "with_embedded", "with_rules", "with_unique_lists",
    )  # fmt: skip

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
        self.pattern = compile_pattern(self.pattern_text).search if self.pattern_text else None
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
        self.with_embedded: bool | None = None
        self.with_unique_lists: bool | None = None
        self.defaulted: list[tuple[str, Schema]] | None = None
        self.validator: Validator | None = None  # compiled on first use

    def child(self, key: str) -> "Schema | None":
        """The schema of an object's field, from its properties or its additional ones."""
        if (found := self.properties.get(key)) is not None:
            return found
        return self.additional if isinstance(self.additional, Schema) else None

    def has_default(self) -> bool:
        return self.default is not ABSENT

    def is_leaf(self) -> bool:
        """Whether it has no child schemas."""
        return not self.properties and self.items is None and not isinstance(self.additional, Schema)

    def defaulted_fields(self) -> list[tuple[str, "Schema"]]:
        """The properties with a default at or below them; computed once."""
        if self.defaulted is None:
            self.defaulted = [
                (key, child)
                for key, child in self.properties.items()
                if any(node.default is not ABSENT for node in walk(child))
            ]
        return self.defaulted

    def has_rules(self) -> bool:
        """Whether this node or any below it has validation rules; computed once."""
        if self.with_rules is None:
            self.with_rules = any(node.rules for node in walk(self))
        return self.with_rules

    def has_unique_lists(self) -> bool:
        """Whether this node or any below it is a set or map list; computed once."""
        if self.with_unique_lists is None:
            self.with_unique_lists = any(node.list_type in ("set", "map") for node in walk(self))
        return self.with_unique_lists

    def has_embedded(self) -> bool:
        """Whether this node or any below it is an embedded resource; computed once."""
        if self.with_embedded is None:
            self.with_embedded = any(node.embedded for node in walk(self))
        return self.with_embedded


def walk(schema: Schema) -> Iterator[Schema]:
    """The schema and all nodes below it, without those in junctions."""
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
    """Drop unknown fields in place and append their paths to `unknown`."""
    if isinstance(value, dict):
        exempt = {"apiVersion", "kind", "metadata"} if root or schema.embedded else ()
        for key in list(value):
            if key in exempt:
                continue
            if (child := schema.child(key)) is not None:
                if isinstance(item := value[key], (dict, list)):
                    prune(item, child, join(path, key), unknown)
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


def prune_custom(
    value: Any, schema: Schema | None, path: str, unknown: list[str], root: bool = False, keeps: bool = False
) -> None:
    """Like `prune`, for custom objects, which are not decoded into Go types: also prunes where there is no schema."""
    keeps = keeps or (schema is not None and schema.preserve)
    if isinstance(value, dict):
        exempt = ("apiVersion", "kind", "metadata") if root or (schema is not None and schema.embedded) else ()
        for key in list(value):
            if key in exempt:
                continue
            item = value[key]
            if schema is not None and (child := schema.properties.get(key)) is not None:
                if isinstance(item, (dict, list)):
                    prune_custom(item, child, join(path, key), unknown)
            elif schema is not None and schema.additional is not None:
                if isinstance(item, (dict, list)) and (isinstance(schema.additional, Schema) or not keeps):
                    inner = schema.additional if isinstance(schema.additional, Schema) else None
                    prune_custom(item, inner, join(path, key), unknown)
            elif not keeps:
                del value[key]
                unknown.append(join(path, key))
    elif isinstance(value, list):
        inner = schema.items if schema is not None else None
        if keeps and inner is None:
            return
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                prune_custom(item, inner, f"{path}[{index}]", unknown, keeps=keeps)


# ---- default


def copy_json(value: Any) -> Any:
    """A deep copy of JSON."""
    try:
        return orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError:  # too deep or not JSON
        return _copied(value)


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON, where true differs from 1, unlike in Python."""
    if one is other:
        return True
    if one != other:
        return False
    if isinstance(one, (dict, list)):
        try:
            texts = [orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in (one, other)]
        except orjson.JSONEncodeError:
            texts = [b"", b"not comparable as text"]
        return texts[0] == texts[1] or _same_parts(one, other)
    return isinstance(one, bool) is isinstance(other, bool)


def _same_parts(one: Any, other: Any) -> bool:
    """Whether two values that are equal in Python are also equal as JSON."""
    if isinstance(one, dict):
        return all(_same_parts(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_same_parts, one, other))
    return isinstance(one, bool) is isinstance(other, bool)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_copied(v) for v in value]
    return value


def apply_defaults(value: Any, schema: Schema) -> Any:
    """Set defaults of missing fields in place; a disallowed null counts as missing if there is a default."""
    if isinstance(value, dict):
        for key, child in schema.defaulted_fields():
            if child.default is not ABSENT and (
                key not in value or (value[key] is None and not child.nullable and child.default is not None)
            ):
                value[key] = copy_json(child.default) if isinstance(child.default, (dict, list)) else child.default
            if isinstance(item := value.get(key), (dict, list)):
                apply_defaults(item, child)
        if isinstance(schema.additional, Schema):
            for key, item in value.items():
                if isinstance(item, (dict, list)) and key not in schema.properties:
                    apply_defaults(item, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)
    return value


def drop_nulls(value: Any, schema: Schema) -> Any:
    """Remove nulls that the schema does not allow, as decoding into a typed field does."""
    try:
        if b"null" not in orjson.dumps(value):  # as with most objects; much faster than looking for them
            return value
    except orjson.JSONEncodeError:  # too deep or not JSON
        pass
    return _drop_nulls(value, schema)


def _drop_nulls(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        nulls = []
        for key, item in value.items():
            if item is None:
                nulls.append(key)
            elif isinstance(item, (dict, list)) and (child := schema.child(key)) is not None and not child.is_leaf():
                _drop_nulls(item, child)
        for key in nulls:
            child = schema.child(key)
            if child and not child.nullable and not child.preserve and (child.type or child.int_or_string):
                del value[key]
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            _drop_nulls(item, schema.items)
    return value
