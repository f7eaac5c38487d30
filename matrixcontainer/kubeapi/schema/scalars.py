"""Validators of scalar values: types, strings, numbers and enums."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.schema.structural import Schema, Validator

NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}
FORMS = {"integer": "int64", "number": "double"}  # format of a number without one
WHOLE_MAX = 2.0**53 - 1
"""Larger floats do not count as integers, as they cannot represent every one (as in `swag.IsFloat64AJSONInteger`)."""


def type_check(python: type, types: tuple[str, ...], form: str) -> Validator | None:
    """A validator that reports a value of this Python type as of the wrong type; None if the type is allowed."""
    actual = NAMES[python]
    texts = python in (str, list)
    numeric = "number" in types or "integer" in types
    if actual in types or (actual == "integer" and "number" in types):
        return None
    if form and texts and not numeric:
        return None  # the format alone decides
    shown, wanted = actual, ",".join(types)
    if form and not texts:
        shown, wanted = FORMS.get(actual, ""), form
    whole_fits = python is float and "integer" in types

    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        if whole_fits and value.is_integer() and abs(value) <= WHOLE_MAX:
            return 1
        causes.append(errors.type_invalid(name, shown, f'{name} in body must be of type {wanted}: "{shown}"'))
        return 0

    return check


def string_checks(schema: Schema, well_formed: Callable[[str], bool] | None) -> list[Validator]:
    most, least, pattern, text, form = (
        schema.max_length,
        schema.min_length,
        schema.pattern,
        schema.pattern_text,
        schema.format,
    )

    def check(value: str, name: str, old: Any, causes: list[Cause]) -> int:
        if most is not None and len(value) > most:
            causes.append(errors.too_long(name, most))
        elif least is not None and len(value) < least:
            causes.append(errors.invalid(name, value, f"{name} in body should be at least {least} chars long"))
        elif pattern is not None and not pattern(value):
            causes.append(errors.invalid(name, value, f"{name} in body should match '{text}'"))
        if well_formed is not None and not well_formed(value):
            detail = f"{name} in body must be of type {form}: {errors.format_value(value)}"
            causes.append(errors.type_invalid(name, value, detail))
        return 0

    if most is None and least is None and pattern is None and well_formed is None:
        return []
    return [check]


def number_checks(schema: Schema) -> list[Validator]:
    """Bounds and multipleOf. Integers are compared with bounds truncated to integers, as upstream does."""
    low, high, step = schema.minimum, schema.maximum, schema.multiple_of
    if low is None and high is None and step is None:
        return []

    def check(value: float, name: str, old: Any, causes: list[Cause]) -> int:
        whole = isinstance(value, int)
        if step is not None and not is_multiple(value, int(step) if whole else step):
            factor = as_number(int(step) if whole else step)
            causes.append(errors.invalid(name, value, f"{name} in body should be a multiple of {factor}"))
        if low is not None:
            bound = int(low) if whole else low
            if value <= bound if schema.exclusive_minimum else value < bound:
                words = "greater than" if schema.exclusive_minimum else "greater than or equal to"
                causes.append(errors.invalid(name, value, f"{name} in body should be {words} {as_number(bound)}"))
        if high is not None:
            bound = int(high) if whole else high
            if value >= bound if schema.exclusive_maximum else value > bound:
                words = "less than" if schema.exclusive_maximum else "less than or equal to"
                causes.append(errors.invalid(name, value, f"{name} in body should be {words} {as_number(bound)}"))
        return 0

    return [check]


def is_multiple(value: float, step: float) -> bool:
    if step <= 0:
        return False
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = 1 / step * value if step < 1 else value / step
    return abs(ratio - round(ratio)) <= 1e-9 * max(1.0, abs(ratio))


def as_number(value: float) -> str:
    """A number as Go's %v prints it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def enum_check(allowed: list[Any]) -> Validator:
    words = [word if isinstance(word, str) else errors.as_json(word) for word in allowed]

    def check(value: Any, name: str, old: Any, causes: list[Cause]) -> int:
        kind = type(value) is bool
        if value is None or not any(value == word and (type(word) is bool) == kind for word in allowed):
            shown = "null" if value is None else value
            causes.append(errors.not_supported(name, shown, words))
        return 0

    return check
