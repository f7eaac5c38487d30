"""Validation of qualified names (`example.com/name`: keys of labels and annotations, finalizers) and label values."""

import re

from matrixcontainer.kubeapi.meta.names import SUBDOMAIN, SUBDOMAIN_TEXT

LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
NAME_LENGTH_MAX = 63
PREFIX_LENGTH_MAX = 253

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


def qualified_name_errors(key: str) -> list[str]:
    """All errors in a qualified name."""
    parts = key.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    errors = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        if len(parts[0]) > PREFIX_LENGTH_MAX:
            errors.append(f"prefix part must be no more than {PREFIX_LENGTH_MAX} characters")
        if parts[0] and not SUBDOMAIN.fullmatch(parts[0]):
            errors.append(f"prefix part {SUBDOMAIN_TEXT}")
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > NAME_LENGTH_MAX:
        errors.append(f"name part must be no more than {NAME_LENGTH_MAX} characters")
    if not LABEL_NAME.fullmatch(name):
        errors.append(f"name part {NAME_RULE}")
    return errors


def qualified_name_error(key: str) -> str:
    """The first error in a qualified name, "" if there is none."""
    return next(iter(qualified_name_errors(key)), "")


def label_value_errors(value: str) -> list[str]:
    """All errors in a label value."""
    errors = []
    if len(value) > NAME_LENGTH_MAX:
        errors.append(f"must be no more than {NAME_LENGTH_MAX} characters")
    if value and not LABEL_NAME.fullmatch(value):
        errors.append(VALUE_RULE)
    return errors
