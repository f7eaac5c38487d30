"""What a kind adds to the common path of a write: its names, defaults, checks and what may change.

The common path (verbs.py) does metadata, revision, generation, managed fields, finalizers and deletion for every
kind. A Strategy is asked at fixed moments and returns causes instead of raising, so that all mistakes are told
together. `CustomStrategy` serves CRDs; built-in kinds derive theirs in the `builtin` package.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.builtin import conversion
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_subdomain
from matrixcontainer.kubeapi.schema import structural, validation
from matrixcontainer.kubeapi.schema.unmarshal_errors import unmarshal_mistake

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.registry.resource import Resource


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
    judged_whole = False  # an update looks at all of the metadata once more
    reported_group: str | None = None  # the group that refusals name, where it is not the resource's own

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in what a Go client could have left out."""
        if self.type_name:
            conversion.drop_empty(obj, self.type_name)
            conversion.read_texts(obj, self.type_name)
            conversion.settle(obj, self.type_name)

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

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """The same for what was written through /status."""
        return self.validate(obj, old)

    def refresh(self, obj: dict[str, Any], resource: "Resource") -> None:
        """Bring an object stored under an older schema up to date for reading."""

    def clean(self, obj: dict[str, Any], resource: "Resource") -> list[str]:
        """Decode leniently: drop unknown fields and return their paths; raise 400 on a wrong type."""
        unknown: list[str] = []
        structural.drop_nulls(obj, resource.schema)
        structural.prune(obj, resource.schema, unknown=unknown, root=True)
        reported = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
        for cause in validation.validate(reported, resource.schema):
            if cause.reason == "FieldValueTypeInvalid" and "must be of type byte" not in cause.message:  # told below
                why = unmarshal_mistake(resource.type_name, obj) if resource.type_name else ""
                raise unreadable(resource, why or f"json: cannot unmarshal into field {cause}")
        if not self.type_name:  # the others keep what is empty and how amounts are spelled: an applier owns it as it is
            conversion.drop_empty(obj, resource.type_name)
        try:
            conversion.read_texts(obj, resource.type_name, spell=False)
        except conversion.Unreadable as failure:
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
