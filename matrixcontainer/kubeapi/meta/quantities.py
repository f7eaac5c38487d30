"""Kubernetes quantities: parsing, canonical form and milli-units.

`canonical("4000m")` is "4", `canonical("1024Mi")` is "1Gi", `canonical("0.5")` is "500m"; precision finer than a
thousandth is rounded up. Rules: public documentation of resource.Quantity.
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

FORM = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
NUMBER = re.compile(r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$")
INTEGER = re.compile(r"^[+-]?[0-9]+$", re.ASCII)
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
EXPONENT = re.compile(r"^[eE]([+-]?[0-9]+)$")
DECIMAL_SUFFIXES = {power: suffix for suffix, power in DECIMAL.items()}
BINARY_SUFFIXES = {power: suffix for suffix, power in BINARY.items()} | {0: ""}
RESOLUTION = Fraction(1, 1000)
LENGTH_MAX = 256
EXPONENT_MAX = 64
"""Larger exponents are clamped to this, beyond any real resource, so that no text is expensive to compute with."""


class InvalidQuantity(ValueError):
    """The text is not a quantity; the message is worded as in the API."""


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Fraction, str]:
    """Parse to (amount, form), where form is decimal, binary or exponent. Raises InvalidQuantity."""
    match = FORM.fullmatch(text)
    if match is None:
        raise InvalidQuantity("quantities must match the regular expression " + f"'{FORM.pattern}'")
    if not NUMBER.fullmatch(match[1]):
        raise InvalidQuantity("unable to parse numeric part of quantity")
    if len(text) > LENGTH_MAX:
        raise InvalidQuantity(f"quantities have at most {LENGTH_MAX} characters")
    number, suffix = Fraction(match[1].rstrip(".")), match[2]
    if suffix in DECIMAL:
        return number * Fraction(10) ** DECIMAL[suffix], "decimal"
    if suffix in BINARY:
        return number * 1024 ** BINARY[suffix], "binary"
    if (power := EXPONENT.fullmatch(suffix)) is None:
        raise InvalidQuantity("unable to parse quantity's suffix")
    return number * Fraction(10) ** max(-EXPONENT_MAX, min(int(power[1]), EXPONENT_MAX)), "exponent"


def parse_int(text: object, default: int = 0, largest: int = 2**31 - 1) -> int:
    """The integer in an annotation or label; `default` if it is not one or is beyond +-`largest`."""
    match = INTEGER.fullmatch(text) if isinstance(text, str) else None
    if match is None or len(match[0]) > 20:
        return default
    number = int(match[0])
    return number if -largest <= number <= largest else default


def amount(text: object) -> Fraction:
    """The amount of a quantity. Raises InvalidQuantity."""
    return parse(str(text).strip())[0]


@lru_cache(maxsize=4096)
def milli(text: object) -> int:
    """Milli-units, rounded up, so that sums and comparisons are exact: "250m" is 250, "1" is 1000."""
    return ceil(amount(text) / RESOLUTION)


def milli_or_zero(text: object) -> int:
    """As `milli`, but 0 for an invalid quantity: controllers must not fail on stored objects."""
    try:
        return milli(text)
    except InvalidQuantity:
        return 0


def format_milli(thousandths: int) -> str:
    """Format milli-units in the shortest decimal form: "2", "1500m"."""
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def format_kibi(thousandths: int) -> str:
    """Format milli-units in Ki, as metrics are reported."""
    return f"{thousandths // 1000 // 1024}Ki"


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The canonical form, rounded up to thousandths. Raises InvalidQuantity."""
    number, form = parse(text)
    return format_amount(Fraction(ceil(number / RESOLUTION)) * RESOLUTION, form)


def format_amount(number: Fraction, form: str = "decimal") -> str:
    """Format an amount in the given form if that is exact, otherwise in decimal."""
    if form == "binary" and (abs(number) < 1024 or number.denominator != 1):
        form = "decimal"
    if form == "binary":
        whole, power = int(number), 0
        while whole % 1024 == 0 and power < max(BINARY_SUFFIXES):
            whole, power = whole // 1024, power + 1
        return f"{whole}{BINARY_SUFFIXES[power]}"
    if not number:
        return "0"
    power = 0
    while number.denominator != 1:
        number, power = number * 1000, power - 3
    whole = int(number)
    while whole % 1000 == 0 and (form == "exponent" or power < max(DECIMAL_SUFFIXES)):
        whole, power = whole // 1000, power + 3
    if form == "exponent":
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{DECIMAL_SUFFIXES.get(power, f'e{power}')}"
