"""CEL operators: no implicit conversion between number types, 64-bit integers with overflow checks."""

import math
from collections.abc import Callable
from typing import Any

from celpy import celtypes
from celpy.evaluation import base_functions

from matrixcontainer.kubeapi.cel.library import select_optional
from matrixcontainer.kubeapi.cel.meter import charge, charged_items, size
from matrixcontainer.kubeapi.cel.values import Optional

Int, Uint, Double, Text, Bool = (
    celtypes.IntType, celtypes.UintType, celtypes.DoubleType, celtypes.StringType, celtypes.BoolType,
)  # fmt: skip
TRUE, FALSE = Bool(True), Bool(False)
NUMBERS = (Int, Uint, Double)
NO_OVERLOAD = "no such overload"


class EvaluationError(Exception):
    """Evaluation failed; the message is worded as in CEL."""


def as_bool(value: Any) -> bool:
    if value is TRUE or value is FALSE:
        return value is TRUE
    if isinstance(value, (bool, Bool)):
        return bool(value)
    raise EvaluationError(NO_OVERLOAD)


# ---- equality and order


def equal(a: Any, b: Any) -> bool:
    """CEL equality: numbers of different types may be equal, other values of different types are not."""
    kind, other = type(a), type(b)
    if kind is Text and other is Text:
        charge(size(a))
        return str.__eq__(a, b)
    if kind in NUMBERS and other in NUMBERS:
        return bool(_plain(a) == _plain(b))
    if kind is Bool and other is Bool:
        return bool(a) is bool(b)
    if isinstance(a, list) and isinstance(b, list):
        charge(1 + len(a))
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        charge(1 + len(a))
        return len(a) == len(b) and all(
            dict.__contains__(b, key) and equal(value, dict.__getitem__(b, key)) for key, value in a.items()
        )
    if isinstance(a, Optional) and isinstance(b, Optional):
        return a.present == b.present and (not a.present or equal(a.value, b.value))
    if a is None or b is None or isinstance(a, type):
        return a is b
    return kind is other and bool(a == b)


def _plain(number: Any) -> int | float:
    return float(number) if isinstance(number, float) else int(number)


def _comparison(predicate: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def compare(a: Any, b: Any) -> Any:
        kind, other = type(a), type(b)
        if kind in NUMBERS and other in NUMBERS:
            return TRUE if predicate(_plain(a), _plain(b)) else FALSE
        if kind is not other or isinstance(a, (list, dict, type)) or a is None:
            raise EvaluationError(NO_OVERLOAD)
        if kind is Text:
            return TRUE if predicate(str(a), str(b)) else FALSE
        return TRUE if predicate(a, b) else FALSE

    return compare


def contains(item: Any, holder: Any) -> Any:
    if isinstance(holder, (list, dict)):
        return TRUE if any(equal(item, one) for one in charged_items(holder)) else FALSE
    raise EvaluationError(NO_OVERLOAD)


def at(holder: Any, place: Any) -> Any:
    """`holder[place]`: an item of a list or the value of a map's key."""
    if isinstance(holder, Optional):
        return select_optional(holder, place)
    if isinstance(holder, list):
        if not isinstance(place, (Int, Uint)):
            raise EvaluationError(NO_OVERLOAD)
        if not 0 <= place < len(holder):
            raise EvaluationError(f"index out of bounds: {int(place)}")
        return list.__getitem__(holder, int(place))
    if isinstance(holder, dict):
        if not dict.__contains__(holder, place):
            raise EvaluationError(f"no such key: {place}")
        return dict.__getitem__(holder, place)
    raise EvaluationError(NO_OVERLOAD)


# ---- arithmetic

MOMENTS = (celtypes.TimestampType, celtypes.DurationType)
SUMMED = (*NUMBERS, Text, celtypes.BytesType, celtypes.ListType, *MOMENTS)


def _arithmetic(name: str, kinds: tuple[type, ...]) -> Callable[..., Any]:
    """cel-python's operator, restricted to operands of these types and charged for traversing them."""
    operate = base_functions[name]

    def step(*values: Any) -> Any:
        kind = type(values[0])
        if kind not in kinds or (kind is not type(values[-1]) and kind not in MOMENTS):
            raise EvaluationError(NO_OVERLOAD)
        charge(sum(map(size, values)))
        try:
            found = operate(*values)
            return found if kind in MOMENTS else kind(found)
        except ZeroDivisionError:
            raise EvaluationError("modulus by zero" if name == "_%_" else "division by zero") from None
        except TypeError:
            raise EvaluationError(NO_OVERLOAD) from None
        except ValueError:
            raise EvaluationError(f"{'unsigned ' if kind is Uint else ''}integer overflow") from None

    return step


multiply, _divide = _arithmetic("_*_", NUMBERS), _arithmetic("_/_", NUMBERS)


def divide(a: Any, b: Any) -> Any:
    """Division; by a floating-point zero it multiplies by infinity, as cel-python loses the sign."""
    if type(b) is Double and not b:
        return multiply(a, Double(math.copysign(math.inf, b)))
    return _divide(a, b)


UNARY: dict[str, Callable[[Any], Any]] = {
    "unary_not": lambda value: FALSE if as_bool(value) else TRUE,
    "unary_neg": _arithmetic("-_", (Int, Double)),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "relation_lt": _comparison(lambda a, b: a < b),
    "relation_le": _comparison(lambda a, b: a <= b),
    "relation_gt": _comparison(lambda a, b: a > b),
    "relation_ge": _comparison(lambda a, b: a >= b),
    "relation_eq": lambda a, b: TRUE if equal(a, b) else FALSE,
    "relation_ne": lambda a, b: FALSE if equal(a, b) else TRUE,
    "relation_in": contains,
    "addition_add": _arithmetic("_+_", SUMMED),
    "addition_sub": _arithmetic("_-_", (*NUMBERS, *MOMENTS)),
    "multiplication_mul": multiply,
    "multiplication_div": divide,
    "multiplication_mod": _arithmetic("_%_", (Int, Uint)),
}
