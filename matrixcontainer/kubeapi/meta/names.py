"""Validation of object names, with upstream's messages."""

import re

SUBDOMAIN = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")
LABEL = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
LABEL_1035 = re.compile(r"^[a-z]([a-z0-9-]*[a-z0-9])?$")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "  # noqa: E501
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "  # noqa: E501
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"  # noqa: E501
)
LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "  # noqa: E501
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def subdomain_error(name: str) -> str:
    """Why the name is not a DNS subdomain; empty if it is one."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if SUBDOMAIN.fullmatch(name) else SUBDOMAIN_TEXT


def label_error(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL.fullmatch(name):
        return ""
    return "must not contain dots" if SUBDOMAIN.fullmatch(name) else LABEL_TEXT


def label_1035_error(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if LABEL_1035.fullmatch(name) else LABEL_1035_TEXT


def path_segment_error(name: str) -> str:
    """Why the name is not a URL path segment, as RBAC names must be; empty if it is one."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{bad}'" for bad in "/%" if bad in name), "")
