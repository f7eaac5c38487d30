"""The string formats a schema may name, each with its check; unknown formats are not checked, as in Kubernetes."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlparse
from uuid import UUID

DATE_TIME = re.compile(
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"  # noqa: E501
)
DURATION = re.compile(
    r"^[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$|^[+-]?0$"
)
HOSTNAME = re.compile(r"^(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$")  # fmt: skip  # noqa: E501
EMAIL = re.compile(r"^[^@\s]+@[^@\s]+$")
MAC = re.compile(r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$")


def _holds(check: Callable[[str], object]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            check(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return test


def _uri(text: str) -> object:
    if not urlparse(text).scheme:
        raise ValueError(text)
    return text


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": lambda text: bool(DATE_TIME.match(text)),
    "datetime": lambda text: bool(DATE_TIME.match(text)),
    "date": _holds(date.fromisoformat),
    "duration": lambda text: bool(DURATION.match(text)),
    "byte": _holds(lambda text: base64.b64decode(text, validate=True)),
    "ipv4": _holds(ipaddress.IPv4Address),
    "ipv6": _holds(ipaddress.IPv6Address),
    "ip": _holds(ipaddress.ip_address),
    "cidr": _holds(lambda text: ipaddress.ip_network(text, strict=False)),
    "hostname": lambda text: bool(HOSTNAME.match(text)),
    "email": lambda text: bool(EMAIL.match(text)),
    "mac": lambda text: bool(MAC.match(text)),
    "uuid": _holds(UUID),
    "uri": _holds(_uri),
}
