"""String formats and their checks; unknown formats are not checked, as in Kubernetes.

Names are compared without dashes. The checks follow the Go packages that the API refers to. Their formats for ISBNs,
credit cards, colours and the like are left out, as no known definition uses them.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlparse

DATE_TIME = re.compile(
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$",
    re.ASCII,
)
DATE = re.compile(r"^\d{4}-\d\d-\d\d$", re.ASCII)
DATE_CHARS = len("2026-01-02")
DURATION = re.compile(
    r"^[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$|^[+-]?0$"
)
LONG_DURATION = re.compile(  # starts at a number's first digit, possessive quantifiers: linear in the text
    r"(?<!\d)\d++\s*+(ns|nano\w*|us|µs|micro\w*|ms|milli\w*|s|sec\w*|m|min\w*|h|hr|hour\w*|d|day\w*|w|wk|week\w*)(?![A-Za-zµ])",
    re.IGNORECASE,
)
HOSTNAME = re.compile(r"^(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$")  # fmt: skip  # noqa: E501
EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")
MAC = re.compile(
    r"^([0-9A-Fa-f]{2}([:-]))([0-9A-Fa-f]{2}\2){4}([0-9A-Fa-f]{2}\2){0,14}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{4}\.){2,9}[0-9A-Fa-f]{4}$"
)
HEX = "[0-9a-fA-F]"


def normal_name(name: str) -> str:
    return name.replace("-", "")


def _validates(predicate: Callable[[str], object]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            predicate(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return test


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    if not text or any(ord(letter) <= 32 or ord(letter) == 127 for letter in text):
        return False
    try:
        return text.startswith("/") or bool(urlparse(text).scheme)
    except ValueError:
        return False


def _is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not length.isdigit():
        return False
    try:
        return int(length) <= ipaddress.ip_address(address).max_prefixlen
    except ValueError:
        return False


def _uuid(version: str = "", variant: str = HEX) -> Callable[[str], bool]:
    third = f"{version}{HEX}{{3}}" if version else f"{HEX}{{4}}"
    return _matches(f"{HEX}{{8}}-?{HEX}{{4}}-?{third}-?{variant}{HEX}{{3}}-?{HEX}{{12}}")


FORMATS: dict[str, Callable[[str], bool]] = {
    "datetime": _validates(lambda text: date.fromisoformat(text[:DATE_CHARS] if DATE_TIME.fullmatch(text) else "")),
    "date": _validates(lambda text: date.fromisoformat(text if DATE.fullmatch(text) else "")),
    "duration": lambda text: bool(DURATION.fullmatch(text) or LONG_DURATION.search(text)),
    "byte": _validates(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _validates(ipaddress.IPv4Address),
    "ipv6": _validates(ipaddress.IPv6Address),
    "cidr": _is_cidr,
    "hostname": lambda text: bool(HOSTNAME.fullmatch(text)),
    "email": lambda text: bool(EMAIL.fullmatch(text)),
    "mac": lambda text: bool(MAC.fullmatch(text)),
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89abAB]"),
    "uuid5": _uuid("5", "[89abAB]"),
    "uri": _is_uri,
    "password": lambda text: True,
}
