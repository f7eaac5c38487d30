"""Validation of qualified names (`example.com/name`: keys of labels and annotations, finalizers) and label values."""

import re

from matrixcontainer.kubeapi.meta.names import SUBDOMAIN, SUBDOMAIN_TEXT

LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
LONGEST_NAME = 63
LONGEST_PREFIX = 253

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def qualified_mistakes(key: str) -> list[str]:
    """All errors in a qualified name."""
    parts = key.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    found = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        if len(parts[0]) > LONGEST_PREFIX:
            found.append(f"prefix part must be no more than {LONGEST_PREFIX} characters")
        if parts[0] and not SUBDOMAIN.fullmatch(parts[0]):
            found.append(f"prefix part {SUBDOMAIN_TEXT}")
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > LONGEST_NAME:
        found.append(f"name part must be no more than {LONGEST_NAME} characters")
    if not LABEL_NAME.fullmatch(name):
        found.append(f"name part {NAME_RULE}")
    return found


def qualified_mistake(key: str) -> str:
    """The first error in a qualified name, "" if there is none."""
    return next(iter(qualified_mistakes(key)), "")


def label_value_mistakes(value: str) -> list[str]:
    """All errors in a label value."""
    found = []
    if len(value) > LONGEST_NAME:
        found.append(f"must be no more than {LONGEST_NAME} characters")
    if value and not LABEL_NAME.fullmatch(value):
        found.append(VALUE_RULE)
    return found
