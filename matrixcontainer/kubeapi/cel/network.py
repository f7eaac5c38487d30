"""Kubernetes' CEL functions for URLs, IP addresses and CIDRs.

Addresses are those that Go's netip parses, without zones and IPv4-mapped IPv6 addresses; a CIDR keeps the address it
was written with. Contract: public documentation "Common Expression Language in Kubernetes".
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from celpy import celtypes

Int, Text, Bool = celtypes.IntType, celtypes.StringType, celtypes.BoolType
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface
ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address)
NETWORKS = (ipaddress.IPv4Interface, ipaddress.IPv6Interface)
PREFIX_LENGTH = re.compile("0|[1-9][0-9]{0,2}")
BROADCAST = ipaddress.IPv4Address("255.255.255.255")
LINK_LOCAL_MULTICAST = (ipaddress.IPv4Network("224.0.0.0/24"), ipaddress.IPv6Network("ff02::/16"))
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NOT_IN_HOSTS = re.compile(r'[\s<>"{}|\\^`]')


# ---- URLs


def url(text: Any) -> Any:
    written = str(text)
    if not CONTROL.search(written):
        parts = urlsplit(written)
        if (parts.scheme or written.startswith("/")) and not NOT_IN_HOSTS.search(parts.netloc):
            return parts
    raise ValueError(f"URL parse error during conversion from string: {text}")


def is_url(text: Any) -> Any:
    return _parses(url, text)


def host_name(parts: Any) -> Any:
    """The host without its port, in its original case."""
    host = parts.netloc.rpartition("@")[2]
    return Text(host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0])


def query(parts: Any) -> Any:
    found = parse_qs(parts.query, keep_blank_values=True)
    return celtypes.MapType(
        {Text(key): celtypes.ListType([Text(value) for value in values]) for key, values in found.items()}
    )


# ---- addresses


def _address(text: str) -> Address:
    found = ipaddress.ip_address(text)
    if "%" in text or (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None):
        raise ValueError(f"IP Address {text!r} parse error: zones and IPv4-mapped IPv6 addresses are not allowed")
    return found


def ip(value: Any) -> Any:
    """Parse an address, or return the address of a CIDR."""
    return value.ip if isinstance(value, NETWORKS) else _address(str(value))


def cidr(text: Any) -> Any:
    address, _, length = str(text).partition("/")
    if not PREFIX_LENGTH.fullmatch(length):
        raise ValueError(f"network address {str(text)!r} parse error: bad prefix length")
    return ipaddress.ip_interface(f"{_address(address)}/{length}")


def is_canonical(text: Any) -> Any:
    return Bool(str(_address(str(text))) == str(text))


def is_global_unicast(address: Any) -> Any:
    """Whether an address is a global unicast address; private ranges count too."""
    others = (address.is_unspecified, address.is_loopback, address.is_multicast, address.is_link_local)
    return Bool(not any(others) and address != BROADCAST)


def contains_address(network: Any, value: Any) -> Any:
    return Bool((value if isinstance(value, ADDRESSES) else _address(str(value))) in network.network)


def contains_network(network: Any, value: Any) -> Any:
    other = value if isinstance(value, NETWORKS) else cidr(value)
    return Bool(other.version == network.version and other.network.subnet_of(network.network))


def _parses(parse: Callable[[Any], Any], text: Any) -> Any:
    """Whether the text can be parsed."""
    try:
        parse(text)
    except ValueError:
        return Bool(False)
    return Bool(True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "url": url,
    "isURL": is_url,
    "getScheme": lambda parts: Text(parts.scheme),
    "getHost": lambda parts: Text(parts.netloc.rpartition("@")[2]),
    "getHostname": host_name,
    "getPort": lambda parts: Text(parts.port or ""),
    "getEscapedPath": lambda parts: Text(parts.path),
    "getQuery": query,
    "isIP": lambda text: _parses(_address, str(text)),
    "ip": ip,
    "ip_isCanonical": is_canonical,
    "family": lambda address: Int(address.version),
    "isUnspecified": lambda address: Bool(address.is_unspecified),
    "isLoopback": lambda address: Bool(address.is_loopback),
    "isLinkLocalMulticast": lambda address: Bool(any(address in network for network in LINK_LOCAL_MULTICAST)),
    "isLinkLocalUnicast": lambda address: Bool(address.is_link_local),
    "isGlobalUnicast": is_global_unicast,
    "isCIDR": lambda text: _parses(cidr, text),
    "cidr": cidr,
    "containsIP": contains_address,
    "containsCIDR": contains_network,
    "masked": lambda network: ipaddress.ip_interface(str(network.network)),
    "prefixLength": lambda network: Int(network.network.prefixlen),
}
