"""The functions Kubernetes adds to CEL: lists, regular expressions, strings, URLs, quantities, addresses, optionals.

Each takes CEL values and returns one; a wrong argument raises ValueError, which makes the rule fail with its text.
List: public documentation "Common Expression Language in Kubernetes". Not there: authorizer, format, semver, sets.
"""

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from celpy import celtypes

from matrixcontainer.kubeapi.cel_values import Optional
from matrixcontainer.kubeapi.schema import compile_pattern

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


def index_of(holder: Any, wanted: Any, start: int = 0) -> Any:
    if isinstance(holder, str):
        return Int(str(holder).find(str(wanted), int(start)))
    return Int(next((place for place, item in enumerate(holder) if item == wanted), -1))


def last_index_of(holder: Any, wanted: Any) -> Any:
    if isinstance(holder, str):
        return Int(str(holder).rfind(str(wanted)))
    return Int(max((place for place, item in enumerate(holder) if item == wanted), default=-1))


# ---- strings


def split(text: Any, by: Any, limit: int = -1) -> Any:
    parts = list(str(text)) if by == "" else str(text).split(str(by), int(limit) - 1 if limit > 0 else -1)
    return Listed([Text(part) for part in ([] if limit == 0 else parts)])


def join(items: Any, by: Any = "") -> Any:
    return Text(str(by).join(str(item) for item in items))


def replace(text: Any, old: Any, new: Any, limit: int = -1) -> Any:
    return Text(str(text).replace(str(old), str(new), int(limit)))


def substring(text: Any, start: int, end: int | None = None) -> Any:
    stop = len(text) if end is None else int(end)
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}")
    return Text(str(text)[int(start) : stop])


def char_at(text: Any, place: int) -> Any:
    if not 0 <= place <= len(text):
        raise ValueError(f"index out of range: {place}")
    return Text(str(text)[int(place) : int(place) + 1])


def ascii_case(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda text: Text("".join(change(letter) if letter.isascii() else letter for letter in str(text)))


# ---- regular expressions


def find(text: Any, pattern: Any) -> Any:
    match = compile_pattern(str(pattern))(str(text))
    return Text(match.group(0) if match else "")


def find_all(text: Any, pattern: Any, limit: int = -1) -> Any:
    compile_pattern(str(pattern))
    found = [match.group(0) for match in re.finditer(str(pattern), str(text))]
    return Listed([Text(word) for word in (found if limit < 0 else found[: int(limit)])])


# ---- URLs


def _url(text: Any) -> Any:
    parts = urlsplit(str(text))
    if not parts.scheme and not str(text).startswith("/"):
        raise ValueError(f"URL parse error during conversion from string: {text}")
    return parts


def is_url(text: Any) -> Any:
    try:
        _url(text)
    except ValueError:
        return Bool(False)
    return Bool(True)


# ---- quantities

SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
QUANTITY = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$")


class Quantity(Decimal):
    """A Kubernetes quantity; equal when the amounts are."""


def quantity(text: Any) -> Any:
    match = QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"quantities must match the regular expression: {text}")
    try:
        number = Decimal(match[1] + (match[2] or ""))
    except InvalidOperation as failure:
        raise ValueError(str(text)) from failure
    suffix = match[3] or ""
    factor = Decimal(1024) ** BINARY[suffix] if suffix in BINARY else Decimal(10) ** SUFFIXES[suffix]
    return Quantity(number * factor)


def is_quantity(text: Any) -> Any:
    return Bool(QUANTITY.match(str(text)) is not None)


def as_integer(value: Quantity) -> Any:
    if value != value.to_integral_value():
        raise ValueError("cannot convert value to integer")
    return Int(int(value))


def _amount(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(int(value))


# ---- addresses


def is_address(text: Any) -> Any:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return Bool(False)
    return Bool(True)


def is_network(text: Any) -> Any:
    try:
        ipaddress.ip_network(str(text), strict=False)
    except ValueError:
        return Bool(False)
    return Bool("/" in str(text))


def contains_address(network: Any, address: Any) -> Any:
    return Bool(ipaddress.ip_address(str(address)) in network)


# ---- optionals


def value_of(held: Optional) -> Any:
    if not held.present:
        raise ValueError("optional.none() dereference")
    return held.value


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
    "find": find,
    "findAll": find_all,
    "url": _url,
    "isURL": is_url,
    "getScheme": lambda url: Text(url.scheme),
    "getHost": lambda url: Text(url.netloc.rpartition("@")[2]),
    "getHostname": lambda url: Text(url.hostname or ""),
    "getPort": lambda url: Text(url.port or ""),
    "getEscapedPath": lambda url: Text(url.path),
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
    "isIP": is_address,
    "ip": lambda text: ipaddress.ip_address(str(text)),
    "family": lambda address: Int(address.version),
    "isCIDR": is_network,
    "cidr": lambda text: ipaddress.ip_network(str(text), strict=False),
    "containsIP": contains_address,
    "hasValue": lambda held: Bool(held.present),
    "value": value_of,
    "orValue": lambda held, other: held.value if held.present else other,
}
