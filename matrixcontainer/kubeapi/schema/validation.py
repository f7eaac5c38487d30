"""Validation of a value against its schema; all errors are reported together.

A schema is compiled once, on first use, into a validator: a function that runs only the checks that apply to a JSON
value's type. Unchanged parts of an object are not validated again (ratcheting), so that a stricter schema does not
block other changes. Wording follows the validation errors of the public API; if no part of an anyOf or oneOf matches,
the errors of the closest one are reported too.
"""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ABSENT, Cause
from matrixcontainer.kubeapi.schema.combinators import compile_junctions
from matrixcontainer.kubeapi.schema.formats import FORMATS, normal_name
from matrixcontainer.kubeapi.schema.scalars import NAMES, enum_check, number_checks, string_checks, type_check
from matrixcontainer.kubeapi.schema.structural import Schema, Validator, same_json

NOWHERE = "<nil>"  # field of an error without one


def type_of(value: Any) -> str:
    return NAMES[type(value)]


def validate(value: Any, schema: Schema, path: str = "", old: Any = ABSENT, below: str = "") -> list[Cause]:
    """All errors in `value`; parts that are unchanged from `old` are not validated again (ratcheting).

    `path` names the value in messages and fields; `below` is a prefix in fields only.
    """
    causes: list[Cause] = []
    validator_of(schema)(value, path, old, causes)
    if not causes:
        return causes
    return [_with_parent_path(cause, below) for cause in dict.fromkeys(causes)]


def _with_parent_path(cause: Cause, below: str) -> Cause:
    name = cause.field.removeprefix(".")
    if name == NOWHERE or not name:
        return Cause(cause.reason, cause.message, below or NOWHERE)
    return Cause(cause.reason, cause.message, f"{below}.{name}" if below else name)


def validator_of(schema: Schema) -> Validator:
    """The validator of a schema, compiled on first use."""
    if schema.validator is None:
        schema.validator = _compile(schema)
    return schema.validator


def _compile(schema: Schema) -> Validator:
    types = ("integer", "string") if schema.int_or_string else (schema.type,) if schema.type else ()
    kind = normal_name(schema.format)
    form = schema.format if kind in FORMATS else ""
    shared = [*compile_junctions(schema, validator_of)]
    last = enum_check(schema.enum) if schema.enum else None
    plans: dict[type, tuple[int, tuple[Validator, ...]]] = {}
    for python in (str, int, float, bool, list, dict):
        checks: list[Validator] = []
        count = 4  # the junctions, the enum and the value itself are always counted
        if types or form:
            if (mistake := type_check(python, types, form)) is not None:
                checks.append(mistake)
                count += 1
            else:
                count += 2
        checks += shared
        if python is str:
            checks += string_checks(schema, FORMATS.get(kind))
            count += 2 if kind in FORMATS else 1
        elif python in (int, float):
            checks += number_checks(schema)
            count += 2
        elif python is list:
            checks += _list_checks(schema)
            count += 2
        if last is not None:
            checks.append(last)
        if python is dict:
            checks += _object_checks(schema)
            count += 1
        plans[python] = (count, tuple(checks))
    nullable = schema.nullable or not types

    def validator(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        if value is None:
            if not nullable:
                text = f'{name} in body must be of type {",".join(types)}: "null"'
                causes.append(errors.type_invalid(name, "null", text))
            if last is not None:
                last(value, name, old, causes)
            return 1
        if old is not ABSENT and type(old) is type(value) and same_json(old, value):
            return 1
        matches, checks = plans[type(value)]
        for check in checks:
            matches += check(value, name, old, causes)
        return matches

    return validator


# ---- lists


def _list_checks(schema: Schema) -> list[Validator]:
    most, least, items = schema.max_items, schema.min_items, schema.items
    causes: list[Validator] = []
    if items is not None:
        inner = validator_of(items)

        def each(value: list[Any], name: str, old: Any, causes: list[Cause]) -> int:
            before = correlate_list(schema, old) if isinstance(old, list) else None
            matches = 0
            for index, item in enumerate(value):
                earlier = before(index, item) if before is not None else ABSENT
                matches += inner(item, f"{name}[{index}]", earlier, causes)
            return matches

        causes.append(each)
    if least is not None or most is not None or schema.unique_items:

        def size(value: list[Any], name: str, old: Any, causes: list[Cause]) -> int:
            if least is not None and len(value) < least:
                text = f"{name} in body should have at least {least} items"
                causes.append(errors.invalid(name, len(value), text))
            if most is not None and len(value) > most:
                causes.append(errors.too_many(name, len(value), most))
            if schema.unique_items and len({errors.format_value(item) for item in value}) < len(value):
                causes.append(errors.invalid(name, "", f"{name} in body shouldn't contain duplicates"))
            return 0

        causes.append(size)
    return causes


def correlate_list(schema: Schema, old: list[Any]) -> Callable[[int, Any], Any]:
    """A function (index, item) that returns the item's old value: by key in map lists, ABSENT in other lists."""
    if schema.list_type == "map":
        by_key = {list_key(schema, item): item for item in old if isinstance(item, dict)}
        return lambda index, item: by_key.get(list_key(schema, item), ABSENT) if isinstance(item, dict) else ABSENT
    return lambda index, item: ABSENT


def list_key(schema: Schema, item: dict[str, Any]) -> str:
    """The key of a map list's item, with defaults of key fields."""
    parts = []
    for key in schema.list_keys:
        value = item.get(key, ABSENT)
        if value is ABSENT and schema.items is not None and key in schema.items.properties:
            value = schema.items.properties[key].default
        parts.append(None if value is ABSENT else value)
    return errors.format_value(parts)


# ---- objects


def _object_checks(schema: Schema) -> list[Validator]:
    least, most, required = schema.min_properties, schema.max_properties, tuple(schema.required)
    children = {key: validator_of(child) for key, child in schema.properties.items()}
    extra = validator_of(schema.additional) if isinstance(schema.additional, Schema) else None
    closed = schema.additional is False

    def parts(value: dict[str, Any], name: str, old: Any, causes: list[Cause]) -> int:
        matches = 0
        dotted = f"{name}." if name else ""
        before = old if isinstance(old, dict) else None
        for key, item in value.items():
            child = children.get(key)
            if child is not None:
                where = dotted + key
            elif extra is not None:
                child, where = extra, f"{name}.{key}"
            elif closed:
                causes.append(errors.invalid(name, key, f"{name}.{key} in body is a forbidden property"))
                continue
            else:
                continue
            earlier = ABSENT if before is None else before.get(key, ABSENT)
            matches += child(item, where, earlier, causes)
        return matches

    def size(value: dict[str, Any], name: str, old: Any, causes: list[Cause]) -> int:
        if least is not None and len(value) < least:
            text = f"{name} in body should have at least {least} properties"
            causes.append(errors.invalid(name, len(value), text))
        if most is not None and len(value) > most:
            causes.append(errors.too_many(name, len(value), most))
        return 0

    def demands(value: dict[str, Any], name: str, old: Any, causes: list[Cause]) -> int:
        causes.extend(errors.required(f"{name}.{key}") for key in required if key not in value)
        return 0

    checks: list[Validator] = []
    if least is not None or most is not None:
        checks.append(size)
    if children or extra is not None or closed:
        checks.append(parts)
    if required:
        checks.append(demands)
    return checks


# ---- sets and map lists


def find_duplicates(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Errors for duplicates in set and map lists; each reports the second occurrence."""
    causes: list[Cause] = []
    if schema.has_unique_lists():
        _find_duplicates(value, schema, path, causes)
    return causes


def _find_duplicates(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    if isinstance(value, list):
        if schema.list_type in ("set", "map"):
            _check_unique(value, schema, path, causes)
        if schema.items is not None and schema.items.has_unique_lists():
            for index, item in enumerate(value):
                _find_duplicates(item, schema.items, f"{path}[{index}]", causes)
    elif isinstance(value, dict):
        for key, item in value.items():
            if (child := schema.properties.get(key)) is not None:
                if child.has_unique_lists():
                    _find_duplicates(item, child, f"{path}.{key}" if path else key, causes)
            elif isinstance(schema.additional, Schema):
                _find_duplicates(item, schema.additional, f"{path}[{key}]", causes)


def _check_unique(value: list[Any], schema: Schema, path: str, causes: list[Cause]) -> None:
    keys = schema.list_keys
    if schema.list_type == "map":
        for index, item in enumerate(value):
            if item is not None and not isinstance(item, dict):
                text = "must be an object for an array of list-type map"
                causes.append(errors.invalid(f"{path}[{index}]", item, text))
                return
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        if schema.list_type == "set":
            identity = _identity(item)
        elif isinstance(item, dict):
            identity = tuple([_identity(item.get(key, ABSENT)) for key in keys])
        else:
            identity = tuple([_identity(ABSENT)] * len(keys))
        times = seen[identity] = seen.get(identity, 0) + 1
        if times == 2:
            current = item or {}
            shown = item if schema.list_type == "set" else {key: current[key] for key in keys if key in current}
            causes.append(errors.duplicate(f"{path}[{index}]", shown))


def _identity(member: Any) -> Any:
    """A hashable identity, equal for members that are equal as JSON: true differs from 1."""
    if isinstance(member, str):
        return member
    return (type(member), errors.as_json(member) if isinstance(member, (dict, list)) else member)
