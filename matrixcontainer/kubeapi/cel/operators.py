"""What the operators of CEL do to two values: no number is quietly turned into another kind, integers have 64 bits."""

import math
from collections.abc import Callable
from typing import Any

from celpy import celtypes

from matrixcontainer.kubeapi.cel.library import select_optional
from matrixcontainer.kubeapi.cel.meter import charge, paid_each, size
from matrixcontainer.kubeapi.cel.values import Optional

Int, Uint, Double, Text, Bool = (
    celtypes.IntType, celtypes.UintType, celtypes.DoubleType, celtypes.StringType, celtypes.BoolType,
)  # fmt: skip
TRUE, FALSE = Bool(True), Bool(False)
INT_MIN, INT_END, UINT_END = -(2**63), 2**63, 2**64
NUMBERS = (Int, Uint, Double)
NO_OVERLOAD = "no such overload"


class Failed(Exception):
    """An expression has no value; the text says why, in CEL's words."""


def truth(value: Any) -> bool:
    if value is TRUE or value is FALSE:
        return value is TRUE
    if isinstance(value, (bool, Bool)):
        return bool(value)
    raise Failed(NO_OVERLOAD)


# ---- equality and order


def equal(a: Any, b: Any) -> bool:
    """Values of different kinds are not equal, but numbers of different kinds may be."""
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


def _order(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def compare(a: Any, b: Any) -> Any:
        kind, other = type(a), type(b)
        if kind in NUMBERS and other in NUMBERS:
            return TRUE if holds(_plain(a), _plain(b)) else FALSE
        if kind is not other or isinstance(a, (list, dict, type)) or a is None:
            raise Failed(NO_OVERLOAD)
        if kind is Text:
            return TRUE if holds(str(a), str(b)) else FALSE
        return TRUE if holds(a, b) else FALSE

    return compare


def contains(item: Any, holder: Any) -> Any:
    if isinstance(holder, (list, dict)):
        return TRUE if any(equal(item, one) for one in paid_each(holder)) else FALSE
    raise Failed(NO_OVERLOAD)


def at(holder: Any, place: Any) -> Any:
    """`holder[place]`: an item of a list or what a map holds under a key."""
    if isinstance(holder, Optional):
        return select_optional(holder, place)
    if isinstance(holder, list):
        if not isinstance(place, (Int, Uint)):
            raise Failed(NO_OVERLOAD)
        if not 0 <= place < len(holder):
            raise Failed(f"index out of bounds: {int(place)}")
        return list.__getitem__(holder, int(place))
    if isinstance(holder, dict):
        if not dict.__contains__(holder, place):
            raise Failed(f"no such key: {place}")
        return dict.__getitem__(holder, place)
    raise Failed(NO_OVERLOAD)


# ---- arithmetic


def _whole(kind: Any, value: int) -> Any:
    low, end, name = (INT_MIN, INT_END, "integer") if kind is Int else (0, UINT_END, "unsigned integer")
    if not low <= value < end:
        raise Failed(f"{name} overflow")
    return kind(value)


def add(a: Any, b: Any) -> Any:
    kind = type(a)
    if kind is not type(b):
        if isinstance(a, (celtypes.TimestampType, celtypes.DurationType)):
            return a + b
        raise Failed(NO_OVERLOAD)
    if kind is Int or kind is Uint:
        return _whole(kind, int(a) + int(b))
    if kind is Double:
        return Double(float(a) + float(b))
    charge(size(a) + size(b))
    if kind is Text:
        return Text(str(a) + str(b))
    if isinstance(a, list):
        return celtypes.ListType([*a, *b])
    if isinstance(a, celtypes.BytesType):
        return celtypes.BytesType(bytes(a) + bytes(b))
    return _other(a, b, lambda x, y: x + y)


def subtract(a: Any, b: Any) -> Any:
    kind = type(a)
    if kind is type(b) and (kind is Int or kind is Uint):
        return _whole(kind, int(a) - int(b))
    if kind is Double and type(b) is Double:
        return Double(float(a) - float(b))
    return _other(a, b, lambda x, y: x - y)


def _other(a: Any, b: Any, operate: Callable[[Any, Any], Any]) -> Any:
    if isinstance(a, (celtypes.TimestampType, celtypes.DurationType)):
        return operate(a, b)
    raise Failed(NO_OVERLOAD)


def multiply(a: Any, b: Any) -> Any:
    kind = type(a)
    if kind is not type(b) or kind not in NUMBERS:
        raise Failed(NO_OVERLOAD)
    return Double(float(a) * float(b)) if kind is Double else _whole(kind, int(a) * int(b))


def divide(a: Any, b: Any) -> Any:
    """Integers are cut towards zero; floating-point numbers divide by zero into infinities."""
    kind = type(a)
    if kind is not type(b) or kind not in NUMBERS:
        raise Failed(NO_OVERLOAD)
    if kind is Double:
        x, y = float(a), float(b)
        if y:
            return Double(x / y)
        return Double(math.nan if not x or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y))
    x, y = int(a), int(b)
    if not y:
        raise Failed("division by zero")
    return _whole(kind, abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def remainder(a: Any, b: Any) -> Any:
    """With the sign of the dividend."""
    kind = type(a)
    if kind is not type(b) or kind not in (Int, Uint):
        raise Failed(NO_OVERLOAD)
    if not int(b):
        raise Failed("modulus by zero")
    found = abs(int(a)) % abs(int(b))
    return kind(-found if int(a) < 0 else found)


def opposite(value: Any) -> Any:
    if type(value) is Int:
        return _whole(Int, -int(value))
    if type(value) is Double:
        return Double(-float(value))
    raise Failed(NO_OVERLOAD)


UNARY: dict[str, Callable[[Any], Any]] = {
    "unary_not": lambda value: FALSE if truth(value) else TRUE,
    "unary_neg": opposite,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "relation_lt": _order(lambda a, b: a < b),
    "relation_le": _order(lambda a, b: a <= b),
    "relation_gt": _order(lambda a, b: a > b),
    "relation_ge": _order(lambda a, b: a >= b),
    "relation_eq": lambda a, b: TRUE if equal(a, b) else FALSE,
    "relation_ne": lambda a, b: FALSE if equal(a, b) else TRUE,
    "relation_in": contains,
    "addition_add": add,
    "addition_sub": subtract,
    "multiplication_mul": multiply,
    "multiplication_div": divide,
    "multiplication_mod": remainder,
}
