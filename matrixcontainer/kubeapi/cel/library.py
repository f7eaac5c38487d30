"""Kubernetes' CEL extension functions: lists, regular expressions, strings, quantities, optionals, sets and formats.

Those for URLs and addresses are in network.py. Each takes and returns CEL values; an invalid argument raises
ValueError, with whose message the rule fails. From the public documentation "Common Expression Language in Kubernetes",
without the authorizer and semantic versions.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from itertools import islice, pairwise
from typing import Any

from celpy import celtypes

from matrixcontainer.kubeapi.cel import network
from matrixcontainer.kubeapi.cel.meter import CHARACTERS_PER_UNIT, charge, size
from matrixcontainer.kubeapi.cel.values import Optional
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, parse
from matrixcontainer.kubeapi.schema.structural import compile_pattern

Int, Text, Bool, Double, Listed = (
    celtypes.IntType, celtypes.StringType, celtypes.BoolType, celtypes.DoubleType, celtypes.ListType,
)  # fmt: skip


# ---- lists


def is_sorted(items: Any) -> Any:
    return Bool(all(a <= b for a, b in pairwise(items)))


def total(items: Any) -> Any:
    if not items:
        return Int(0)
    found = items[0]
    if isinstance(found, (str, bytes, list)):
        raise ValueError("no such overload")
    for item in items[1:]:
        found = found + item
    return found


def least(*items: Any) -> Any:
    values = items[0] if len(items) == 1 and isinstance(items[0], list) else items
    if not values:
        raise ValueError("min called on empty list")
    return min(values)


def greatest(*items: Any) -> Any:
    values = items[0] if len(items) == 1 and isinstance(items[0], list) else items
    if not values:
        raise ValueError("max called on empty list")
    return max(values)


def index_of(holder: Any, target: Any, start: int = 0) -> Any:
    if isinstance(holder, str):
        return Int(str(holder).find(str(target), int(start)))
    return Int(next((position for position, item in enumerate(holder) if item == target), -1))


def last_index_of(holder: Any, target: Any, start: int | None = None) -> Any:
    """Index of the last occurrence; in a string, of the last that begins at `start` or earlier."""
    if isinstance(holder, str):
        end = None if start is None else int(start) + len(target)
        return Int(str(holder).rfind(str(target), 0, end))
    return Int(max((position for position, item in enumerate(holder) if item == target), default=-1))


# ---- strings


def split(text: Any, by: Any, limit: int = -1) -> Any:
    parts = list(str(text)) if by == "" else str(text).split(str(by), int(limit) - 1 if limit > 0 else -1)
    return Listed([Text(part) for part in ([] if limit == 0 else parts)])


def join(items: Any, by: Any = "") -> Any:
    charge(sum(1 + (len(str(item)) + len(by)) // CHARACTERS_PER_UNIT for item in items))
    return Text(str(by).join(str(item) for item in items))


def replace(text: Any, old: Any, new: Any, limit: int = -1) -> Any:
    whole, part, other = str(text), str(old), str(new)
    places = whole.count(part) if limit < 0 else min(whole.count(part), int(limit))
    charge(places * (1 + len(other) // CHARACTERS_PER_UNIT))  # before building the text
    return Text(whole.replace(part, other, int(limit)))


def substring(text: Any, start: int, end: int | None = None) -> Any:
    stop = len(text) if end is None else int(end)
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}")
    return Text(str(text)[int(start) : stop])


def char_at(text: Any, position: int) -> Any:
    if not 0 <= position <= len(text):
        raise ValueError(f"index out of range: {position}")
    return Text(str(text)[int(position) : int(position) + 1])


def ascii_case(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda text: Text("".join(change(letter) if letter.isascii() else letter for letter in str(text)))


def string(value: Any) -> Any:
    """`string(x)`, formatted as CEL does; cel-python gets booleans and fractions of numbers and times wrong."""
    if isinstance(value, celtypes.BoolType):
        return Text("true" if value else "false")
    if isinstance(value, celtypes.DoubleType):
        return Text(shortest(float(value)))
    if isinstance(value, celtypes.DurationType):
        return Text(f"{_plain(value.total_seconds())}s")
    if isinstance(value, celtypes.TimestampType) and value.microsecond:
        fraction = f"{value.microsecond:06d}".rstrip("0")
        return Text(f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{fraction}Z")
    return Text(str(value)) if isinstance(value, (*network.ADDRESSES, *network.NETWORKS)) else Text(value)


def _plain(number: float) -> str:
    """The shortest representation without an exponent."""
    return f"{Decimal(repr(number)).normalize():f}"


def shortest(number: float) -> str:
    """The shortest text that parses to the same number, as Go's %g prints it: 1, 0.5, 1e+06."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    exact = Decimal(repr(number)).normalize()
    power = exact.adjusted() if number else 0
    if -4 <= power < 6:
        return f"{exact:f}"
    return f"{exact.scaleb(-power):f}e{power:+03d}"


# ---- regular expressions


def find(text: Any, pattern: Any) -> Any:
    match = compile_pattern(str(pattern)).search(str(text))
    return Text(match.group(0) if match else "")


def find_all(text: Any, pattern: Any, limit: int = -1) -> Any:
    matches = compile_pattern(str(pattern)).finditer(str(text))
    return Listed([Text(match.group(0)) for match in islice(matches, None if limit < 0 else int(limit))])


def matches(text: Any, pattern: Any) -> Any:
    return Bool(compile_pattern(str(pattern)).search(str(text)) is not None)


# ---- quantities


class Quantity(Decimal):
    """A Kubernetes quantity; equality compares amounts."""


def quantity(text: Any) -> Any:
    number = parse(str(text))[0]
    return Quantity(Decimal(number.numerator) / Decimal(number.denominator))


def is_quantity(text: Any) -> Any:
    try:
        parse(str(text))
    except InvalidQuantity:
        return Bool(False)
    return Bool(True)


def as_integer(value: Quantity) -> Any:
    if value != value.to_integral_value():
        raise ValueError("cannot convert value to integer")
    return Int(int(value))


def _amount(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(int(value))


# ---- optionals


def value_of(current: Optional) -> Any:
    if not current.present:
        raise ValueError("optional.none() dereference")
    return current.value


def select_optional(holder: Any, name: Any) -> Optional:
    """`holder.?name`: none if the field or any optional before it is absent."""
    if isinstance(holder, Optional):
        return select_optional(holder.value, name) if holder.present else holder
    if isinstance(holder, dict):
        return Optional(holder[name]) if name in holder else Optional()
    if isinstance(holder, list):
        return Optional(holder[int(name)]) if 0 <= int(name) < len(holder) else Optional()
    return Optional()


def of_non_zero(value: Any) -> Optional:
    return Optional(value) if value not in (None, 0, "", False) and value != [] and value != {} else Optional()


# ---- sets


def set_contains(holder: Any, target: Any) -> Any:
    charge(len(holder) * len(target))
    return Bool(all(item in holder for item in target))


def set_intersects(holder: Any, other: Any) -> Any:
    charge(len(holder) * len(other))
    return Bool(any(item in other for item in holder))


# ---- text from values

VERB = re.compile(r"%(?:\.(\d+))?([sdfexXob%])")


def formatted(text: Any, values: Any) -> Any:
    """`'%s is %d'.format([a, b])`. Raises ValueError if verbs and values do not match."""
    left = list(values)

    def one(match: re.Match[str]) -> str:
        digits, verb = match[1], match[2]
        if verb == "%":
            return "%"
        if not left:
            raise ValueError(f"index {len(values)} out of range")
        value = left.pop(0)
        if verb == "s":
            return _printed(value)
        if digits and len(digits) > 3:
            raise ValueError(f"precision must be at most 999: {digits[:10]}")
        if verb in "fe":
            return f"{float(value):.{digits or 6}{verb}}"
        if verb in "xX" and isinstance(value, str):
            return value.encode().hex() if verb == "x" else value.encode().hex().upper()
        return format(int(value), verb)

    return Text(VERB.sub(one, str(text)))


def _printed(value: Any) -> str:
    charge(1 + size(value))
    if isinstance(value, celtypes.BoolType):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_printed, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_printed(k)}: {_printed(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, celtypes.DoubleType) and math.isfinite(value):
        return _plain(float(value))
    if isinstance(value, (celtypes.DurationType, celtypes.TimestampType)):
        return str(string(value))
    return "null" if value is None else str(value)


# ---- named formats


class Format:
    """A named format; `mistake` returns what is wrong with a string, "" if nothing."""

    def __init__(self, name: str, mistake: Callable[[str], str]) -> None:
        self.name, self.mistake = name, mistake


def _matching(pattern: str, most: int) -> Callable[[str], str]:
    compiled = compile_pattern(pattern)
    return lambda text: "" if len(text) <= most and compiled.fullmatch(text) else f"must match {pattern}"


LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
FORMATS = {
    "dns1123Label": _matching(LABEL, 63),
    "dns1123LabelPrefix": _matching(f"{LABEL}-?", 63),
    "dns1123Subdomain": _matching(rf"{LABEL}(\.{LABEL})*", 253),
    "dns1123SubdomainPrefix": _matching(rf"{LABEL}(\.{LABEL})*-?", 253),
    "dns1035Label": _matching("[a-z]([-a-z0-9]*[a-z0-9])?", 63),
    "dns1035LabelPrefix": _matching("[a-z]([-a-z0-9]*[a-z0-9])?-?", 63),
    "qualifiedName": _matching(rf"({LABEL}(\.{LABEL})*/)?{NAME}", 317),
    "labelValue": _matching(f"({NAME})?", 63),
    "uuid": _matching("[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", 36),
    "byte": _matching("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", 2**31),
    "date": _matching(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", 10),
    "datetime": _matching(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", 64),
    "uri": lambda text: "" if network.is_url(text) else "must be a URI",
}


def named_format(name: Any) -> Optional:
    return Optional(Format(str(name), FORMATS[str(name)])) if str(name) in FORMATS else Optional()


def validated(by: Format, text: Any) -> Optional:
    error = by.mistake(str(text))
    return Optional(Listed([Text(error)])) if error else Optional()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isSorted": is_sorted,
    "sum": total,
    "min": least,
    "max": greatest,
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "split": split,
    "join": join,
    "replace": replace,
    "substring": substring,
    "charAt": char_at,
    "lowerAscii": ascii_case(str.lower),
    "upperAscii": ascii_case(str.upper),
    "trim": lambda text: Text(str(text).strip()),
    "reverse": lambda holder: Text(str(holder)[::-1]) if isinstance(holder, str) else Listed(list(holder)[::-1]),
    **network.FUNCTIONS,
    "string": string,
    "matches": matches,
    "find": find,
    "findAll": find_all,
    "quantity": quantity,
    "isQuantity": is_quantity,
    "sign": lambda value: Int((value > 0) - (value < 0)),
    "isLessThan": lambda a, b: Bool(a < b),
    "isGreaterThan": lambda a, b: Bool(a > b),
    "compareTo": lambda a, b: Int((a > b) - (a < b)),
    "add": lambda a, b: Quantity(a + _amount(b)),
    "sub": lambda a, b: Quantity(a - _amount(b)),
    "isInteger": lambda value: Bool(value == value.to_integral_value()),
    "asInteger": as_integer,
    "asApproximateFloat": lambda value: Double(float(value)),
    "optSelect": select_optional,
    "optIndex": select_optional,
    "optional_of": Optional,
    "optional_none": lambda: Optional(),
    "optional_ofNonZeroValue": of_non_zero,
    "or": lambda current, other: current if current.present else other,
    "sets_contains": set_contains,
    "sets_equivalent": lambda a, b: Bool(bool(set_contains(a, b)) and bool(set_contains(b, a))),
    "sets_intersects": set_intersects,
    "format": formatted,
    "format_named": named_format,
    **{f"format_{name}": (lambda name=name: Format(name, FORMATS[name])) for name in FORMATS},
    "validate": validated,
    "hasValue": lambda current: Bool(current.present),
    "value": value_of,
    "orValue": lambda current, other: current.value if current.present else other,
}
