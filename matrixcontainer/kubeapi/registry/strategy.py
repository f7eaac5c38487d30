"""Strategy: what a kind adds to the generic write path: names, defaults, validation and immutable fields.

The generic path (writer.py) handles metadata, revision, generation, managed fields, finalizers and deletion for every
kind. It calls the Strategy at fixed points; validation returns causes instead of raising, so that all errors are
reported together. Built-in kinds derive theirs from `builtin.strategy`, custom resources from `apiextensions.strategy`.
"""

from collections.abc import Callable
from typing import Any, Protocol

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import subdomain_error
from matrixcontainer.kubeapi.schema import structural, validation


class ResourceInfo(Protocol):
    """The part of a Resource that its strategy needs."""

    group: str
    version: str
    plural: str
    kind: str
    schema: structural.Schema
    type_name: str
    status: bool
    custom: bool


class Strategy:
    """Default behaviour, for kinds without special rules."""

    check_name: Callable[[str], str] = staticmethod(subdomain_error)
    sets_grace_period: bool = True
    has_generation = True
    unconditional_update = True  # PUT without resourceVersion is accepted
    returns_deleted = False  # DELETE answers with the object instead of a Status
    strategic = True  # strategic merge patch is accepted
    create_on_update = False
    grace: Callable[[dict[str, Any], int | None], int] | None = None  # grace period in seconds after DELETE
    validates_metadata_twice = False  # an update validates all metadata twice
    error_group: str | None = None  # group named in errors, if not the resource's own

    def default(self, obj: dict[str, Any]) -> None:
        """Set defaults of omitted fields."""

    def prepare_create(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        """Reset fields that clients may not set at creation."""
        if resource.status:
            obj.pop("status", None)

    def prepare_update(self, new: dict[str, Any], old: dict[str, Any], resource: ResourceInfo) -> None:
        if resource.status:
            restore_field(new, old, "status")

    def prepare_status_update(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """A write to /status changes nothing but the status (and, for built-ins, labels and annotations)."""
        for key in set(new) | set(old):
            if key not in ("status", "metadata", "apiVersion", "kind"):
                restore_field(new, old, key)

    def mark_deleted(self, obj: dict[str, Any]) -> None:
        """Change further fields of an object when its deletion starts."""

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        return []

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """Validate a write through /status."""
        return self.validate(obj, old)

    def refresh(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        """Bring an object stored under an older schema up to date for reading."""

    def clean(self, obj: dict[str, Any], resource: ResourceInfo) -> list[str]:
        """Decode leniently: drop unknown fields and return their paths; raise 400 on a wrong type."""
        unknown: list[str] = []
        structural.drop_nulls(obj, resource.schema)
        structural.prune(obj, resource.schema, unknown=unknown, root=True)
        self.check_types(obj, resource)
        return unknown

    def check_types(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        """Raise 400 if a value does not have its field's type."""
        stated = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
        for cause in validation.validate(stated, resource.schema):
            if cause.reason == "FieldValueTypeInvalid" and "must be of type byte" not in cause.message:
                raise decoding_error(resource, f"json: cannot unmarshal into field {cause}")


def decoding_error(resource: ResourceInfo, why: str) -> errors.ApiError:
    """400: the body cannot be decoded as this kind."""
    return errors.bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'
    )


def restore_field(new: dict[str, Any], old: dict[str, Any], key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)
