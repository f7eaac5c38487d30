"""Validation of built-in types: rules per struct, and the walk that applies them.

A rule takes a struct and its path and yields errors; `RULES` maps structs to rules. `check(obj, type)` applies them to
all structs in an object. Wording follows the public API.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.conversion import nested_struct
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.qualified_names import label_value_errors, qualified_name_errors
from matrixcontainer.kubeapi.schema.structural import join
from matrixcontainer.kubeapi.schema.types import flat_rows

Obj = dict[str, Any]
Rule = Callable[[Obj, str], Iterable[Cause]]
TextCheck = Callable[[str], str]

PORT_MAX = 65535
RANGE = "must be between {} and {}, inclusive"
NOT_NEGATIVE = "must be greater than or equal to 0"
PORT_NAME = re.compile(r"[-a-z0-9]+")

RULES: dict[str, tuple[Rule, ...]] = {}


def rules(struct: str, *causes: Rule) -> None:
    """Register rules for a struct."""
    RULES[struct] = RULES.get(struct, ()) + causes


# ---- rules for one field


def required(*keys: str, detail: str = "") -> Rule:
    """The fields must not be empty."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        for key in keys:
            if not value.get(key):
                yield errors.required(join(path, key), detail)

    return rule


def enum(key: str, *allowed: str, required: bool = False) -> Rule:
    """The field must be one of the allowed values; it may be empty unless `required`."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = value.get(key)
        if not current:
            if required:
                yield errors.required(join(path, key))
        elif current not in allowed:
            yield errors.not_supported(join(path, key), current, list(allowed))

    return rule


def text_checks(key: str, *checks: TextCheck) -> Rule:
    """The field, unless empty, must pass these string checks."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = value.get(key)
        for check in checks if current else ():
            if why := check(str(current)):
                yield errors.invalid(join(path, key), current, why)

    return rule


def not_negative(*keys: str) -> Rule:
    def rule(value: Obj, path: str) -> Iterator[Cause]:
        for key in keys:
            if (value.get(key) or 0) < 0:
                yield errors.invalid(join(path, key), value[key], NOT_NEGATIVE)

    return rule


def in_range(key: str, low: int, high: int) -> Rule:
    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = value.get(key)
        if current is not None and not low <= current <= high:
            yield errors.invalid(join(path, key), current, RANGE.format(low, high))

    return rule


def port(key: str, zero: str = "invalid") -> Rule:
    """A port number; zero counts as `invalid`, as `missing`, or as no port (`none`)."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = value.get(key) or 0
        if current == 0 and zero != "invalid":
            if zero == "missing":
                yield errors.required(join(path, key))
        elif not 1 <= current <= PORT_MAX:
            yield errors.invalid(join(path, key), current, RANGE.format(1, PORT_MAX))

    return rule


def port_or_name(key: str, absent: bool = False) -> Rule:
    """A port number or name; with `absent` it is optional."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = value.get(key)
        if current is None and absent:
            return
        if isinstance(current, str):
            yield from (errors.invalid(join(path, key), current, why) for why in port_name_errors(current))
        elif not 1 <= (current or 0) <= PORT_MAX:
            yield errors.invalid(join(path, key), current or 0, RANGE.format(1, PORT_MAX))

    return rule


def port_name_errors(text: str) -> list[str]:
    causes = []
    if len(text) > 15:
        causes.append("must be no more than 15 characters")
    if not PORT_NAME.fullmatch(text):
        causes.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        causes.append("must contain at least one letter (a-z)")
    if "--" in text:
        causes.append("must not contain consecutive hyphens")
    if text[:1] == "-" or text[-1:] == "-":
        causes.append("must not begin or end with a hyphen")
    return causes


def labels(key: str) -> Rule:
    """The field is a map of labels."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        where = join(path, key)
        for name, text in (value.get(key) or {}).items():
            yield from (errors.invalid(where, name, why) for why in qualified_name_errors(name))
            yield from (errors.invalid(where, text, why) for why in label_value_errors(text))

    return rule


def exactly_one(noun: str, *keys: str, message: str = "may not specify more than 1 {}") -> Rule:
    """Exactly one of these fields must be set."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        current = [key for key in keys if value.get(key) is not None]
        if not current:
            yield errors.required(path, f"must specify a {noun}")
        for key in current[1:]:
            yield errors.forbidden_field(join(path, key), message.format(noun))

    return rule


def unique(list_field: str, key: str) -> Rule:
    """Items of a list must differ in `key`."""

    def rule(value: Obj, path: str) -> Iterator[Cause]:
        seen = set()
        for index, item in enumerate(value.get(list_field) or []):
            current = item.get(key)
            if current and current in seen:
                yield errors.duplicate(f"{path}.{list_field}[{index}].{key}", current)
            seen.add(current)

    return rule


# ---- label selectors


def label_selector(value: Obj, path: str) -> Iterator[Cause]:
    yield from labels("matchLabels")(value, path)
    for index, term in enumerate(value.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        key, operator, values = term.get("key", ""), term.get("operator", ""), term.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                yield errors.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield errors.forbidden_field(f"{where}.values", why)
        else:
            yield errors.invalid(f"{where}.operator", operator, "not a valid selector operator")
        yield from (errors.invalid(f"{where}.key", key, why) for why in qualified_name_errors(key))
        for place, text in enumerate(values):
            for why in label_value_errors(text):
                yield errors.invalid(f"{where}.values[{place}]", text, why)


rules("meta.v1.LabelSelector", label_selector)


# ---- the walk

_NESTED_STRUCTS: dict[str, list[tuple[str, str, str]]] = {}


def _nested_structs(name: str) -> list[tuple[str, str, str]]:
    """The fields of a struct with rules at or below them: (key, shape, type)."""
    if (causes := _NESTED_STRUCTS.get(name)) is not None:
        return causes
    causes = _NESTED_STRUCTS[name] = []
    for key, row in flat_rows(name).items():
        shape, struct = nested_struct(row[2])
        if shape and struct != "meta.v1.ObjectMeta" and (struct in RULES or _nested_structs(struct)):
            causes.append((key, shape, struct))
    return causes


def check(value: Obj, name: str, path: str = "") -> list[Cause]:
    """All errors in a value of a type."""
    causes: list[Cause] = []
    for rule in RULES.get(name, ()):
        causes += rule(value, path)
    for key, shape, struct in _nested_structs(name):
        current = value.get(key)
        if current is None:
            continue
        where = join(path, key)
        if shape == "one":
            causes += check(current, struct, where)
        elif shape == "list":
            for index, item in enumerate(current):
                causes += check(item, struct, f"{where}[{index}]")
        else:
            for map_key, item in current.items():
                causes += check(item, struct, f"{where}[{map_key}]")
    return causes
