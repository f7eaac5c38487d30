"""Everything that is wrong with a value under its schema, told together, in the wording clients of the API know.

Unchanged parts of an object are not judged again (ratcheting), so that a stricter schema does not block other changes.
Wording follows the validation errors of the public API; the order of causes is that of the object's fields.
"""

import math
from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import ABSENT, Cause
from matrixcontainer.kubeapi.formats import FORMATS
from matrixcontainer.kubeapi.schema import Schema, join


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
        found.append(errors.too_many(path, len(value), schema.max_properties))
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
