"""What a kind adds to the common path of a write: its names, defaults, checks and what may change.

The common path (verbs.py) does metadata, revision, generation, managed fields, finalizers and deletion for every
kind. A Strategy is asked at fixed moments and returns causes instead of raising, so that all mistakes are told
together. `CustomStrategy` serves CRDs; built-in kinds derive theirs in the `builtin` package.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors, schema, validation
from matrixcontainer.kubeapi.builtin import typed
from matrixcontainer.kubeapi.errors import ABSENT, Cause

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource

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


def is_subdomain(name: str) -> str:
    """Why the name is not a DNS subdomain; empty when it is one."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if SUBDOMAIN.match(name) else SUBDOMAIN_TEXT


def is_label(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL.match(name):
        return ""
    return "must not contain dots" if SUBDOMAIN.match(name) else LABEL_TEXT


def is_label_1035(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if LABEL_1035.match(name) else LABEL_1035_TEXT


def is_path_segment(name: str) -> str:
    """RBAC names: anything that can stand alone in a URL path."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{bad}'" for bad in "/%" if bad in name), "")


class Strategy:
    """The behaviour of a kind nobody has special rules for."""

    check_name: Callable[[str], str] = staticmethod(is_subdomain)
    tells_grace: bool = True
    has_generation = True
    unconditional_update = True  # PUT without resourceVersion is accepted
    returns_deleted = False  # DELETE answers with the object instead of a Status
    strategic = True  # strategic merge patch is accepted
    create_on_update = False
    grace: Callable[[dict[str, Any], int | None], int] | None = None  # seconds a bound object stays after DELETE
    type_name = ""  # in the table of built-in types
    judge: Callable[[dict[str, Any], dict[str, Any] | None], list[Cause]] | None = None  # by the rules of its type
    told_group: str | None = None  # the group that refusals name, where it is not the resource's own

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in what a Go client could have left out."""
        if self.type_name:
            typed.settle(obj, self.type_name)

    def prepare_create(self, obj: dict[str, Any], resource: "Resource") -> None:
        """Reset what clients may not set at creation."""
        if resource.status:
            obj.pop("status", None)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: "Resource") -> None:
        if resource.status:
            keep_part(new, old, "status")

    def prepare_status_update(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """On /status everything but the status (and, for built-ins, labels and annotations) is kept as it was."""
        for key in set(new) | set(old):
            if key not in ("status", "metadata", "apiVersion", "kind"):
                keep_part(new, old, key)

    def mark_deleted(self, obj: dict[str, Any]) -> None:
        """What else changes in an object at the moment its deletion begins."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        return self.judge(obj, old) if self.judge is not None else []

    def refresh(self, obj: dict[str, Any], resource: "Resource") -> None:
        """Bring an object stored under an older schema up to date for reading."""

    def clean(self, obj: dict[str, Any], resource: "Resource") -> list[str]:
        """Decode leniently: drop unknown fields and return their paths; raise 400 on a wrong type."""
        unknown: list[str] = []
        schema.drop_nulls(obj, resource.schema)
        schema.prune(obj, resource.schema, unknown=unknown, root=True)
        wrong = validation.validate({k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}, resource.schema)
        for cause in wrong:
            if cause.reason == "FieldValueTypeInvalid":
                value = cause.message.removeprefix("Invalid value: ")
                raise unreadable(resource, f"json: cannot unmarshal into field {cause.field}: {value}")
        typed.drop_empty(obj, resource.type_name)
        try:
            typed.read_texts(obj, resource.type_name)
        except typed.Unreadable as failure:
            raise unreadable(resource, str(failure)) from failure
        return unknown


def unreadable(resource: "Resource", why: str) -> errors.ApiError:
    """400: the body is not of the kind it should be."""
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'
    )


def keep_part(new: dict[str, Any], old: dict[str, Any], key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


class CustomStrategy(Strategy):
    """Objects of a CRD: structural schema, defaults, full validation with ratcheting, then CEL rules."""

    unconditional_update = False
    strategic = False

    def __init__(self, version_schema: schema.Schema) -> None:
        self.schema = version_schema
        self.with_rules = version_schema.has_rules()

    def clean(self, obj: dict[str, Any], resource: "Resource") -> list[str]:
        unknown: list[str] = []
        schema.prune(obj, self.schema, unknown=unknown, root=True)
        return sorted(unknown)

    def default(self, obj: dict[str, Any]) -> None:
        schema.apply_defaults(obj, self.schema)
        schema.drop_nulls(obj, self.schema)

    def refresh(self, obj: dict[str, Any], resource: "Resource") -> None:
        schema.prune(obj, self.schema, root=True)
        schema.apply_defaults(obj, self.schema)

    def prepare_status_update(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        super().prepare_status_update(new, old)
        managed = new["metadata"].get("managedFields")
        revision = new["metadata"].get("resourceVersion")
        new["metadata"] = dict(old["metadata"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        if revision is not None:
            new["metadata"]["resourceVersion"] = revision

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        skip = ("apiVersion", "kind", "metadata")
        body = {key: value for key, value in obj.items() if key not in skip}
        before: Any = {key: value for key, value in old.items() if key not in skip} if old else ABSENT
        found = []
        for cause in validation.validate(body, self.schema, old=before):
            if cause.field in skip and cause.reason == "FieldValueRequired":
                continue
            found.append(cause)
        blocking = {f"FieldValue{word}" for word in ("Required", "NotSupported", "TooLong", "TooMany", "TypeInvalid")}
        if not self.with_rules:
            return found
        if any(cause.reason in blocking for cause in found):
            return [*found, UNCHECKED]
        from matrixcontainer.kubeapi import cel

        return found + cel.check(self.schema, obj, old)


UNCHECKED = errors.invalid(
    "<nil>",
    "null",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)
