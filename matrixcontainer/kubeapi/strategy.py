"""What a kind adds to the common path of a write: its names, defaults, checks and what may change.

The common path (verbs.py) does metadata, revision, generation, managed fields, finalizers and deletion for every
kind. A Strategy is asked at fixed moments and returns causes instead of raising, so that all mistakes are told
together. `CustomStrategy` serves CRDs; built-in kinds derive theirs in the `builtin` package.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import embedded, errors, scale_checks, schema, validation
from matrixcontainer.kubeapi.builtin import typed
from matrixcontainer.kubeapi.errors import ABSENT, Cause
from matrixcontainer.kubeapi.go_decoding import unmarshal_mistake
from matrixcontainer.kubeapi.names import is_subdomain

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.resources import Resource, ScalePaths


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
    told_group: str | None = None  # the group that refusals name, where it is not the resource's own

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in what a Go client could have left out."""
        if self.type_name:
            typed.drop_empty(obj, self.type_name)
            typed.read_texts(obj, self.type_name)
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

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """The same for what was written through /status."""
        return self.validate(obj, old)

    def refresh(self, obj: dict[str, Any], resource: "Resource") -> None:
        """Bring an object stored under an older schema up to date for reading."""

    def clean(self, obj: dict[str, Any], resource: "Resource") -> list[str]:
        """Decode leniently: drop unknown fields and return their paths; raise 400 on a wrong type."""
        unknown: list[str] = []
        schema.drop_nulls(obj, resource.schema)
        schema.prune(obj, resource.schema, unknown=unknown, root=True)
        said = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind")}
        for cause in validation.validate(said, resource.schema):
            if cause.reason == "FieldValueTypeInvalid" and "must be of type byte" not in cause.message:  # told below
                why = unmarshal_mistake(resource.type_name, obj) if resource.type_name else ""
                raise unreadable(resource, why or f"json: cannot unmarshal into field {cause}")
        if not self.type_name:  # the others keep what is empty and how amounts are spelled: an applier owns it as it is
            typed.drop_empty(obj, resource.type_name)
        try:
            typed.read_texts(obj, resource.type_name, spell=False)
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

    def __init__(self, version_schema: schema.Schema, scale: "ScalePaths | None" = None) -> None:
        self.schema = version_schema
        self.scale = scale
        self.with_rules = version_schema.has_rules()

    def clean(self, obj: dict[str, Any], resource: "Resource") -> list[str]:
        unknown: list[str] = []
        schema.prune_custom(obj, self.schema, "", unknown, root=True)
        deeper: list[str] = []
        for cause in embedded.clean_embedded(obj, self.schema, "", deeper):
            raise unreadable(resource, str(cause))
        return sorted(unknown) + sorted(deeper)

    def default(self, obj: dict[str, Any]) -> None:
        schema.apply_defaults(obj, self.schema)
        schema.drop_nulls(obj, self.schema)

    def refresh(self, obj: dict[str, Any], resource: "Resource") -> None:
        schema.prune_custom(obj, self.schema, "", [], root=True)
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
        found = validation.validate(obj, self.schema, old=old if old is not None else ABSENT)
        if self.scale is not None:
            found += scale_checks.check_wanted(obj, self.scale) + scale_checks.check_told(obj, self.scale)
        return self._finish(obj, old, found + embedded.check_embedded(obj, self.schema))

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """Through /status only the status is judged, and called by its own paths."""
        found: list[Cause] = []
        part = self.schema.properties.get("status")
        if "status" in obj and part is not None:
            before = old.get("status", ABSENT)
            found += validation.validate(obj["status"], part, old=before, below="status")
        if self.scale is not None:
            found += scale_checks.check_told(obj, self.scale)
        return self._finish(obj, old, found)

    def _finish(self, obj: dict[str, Any], old: dict[str, Any] | None, found: list[Cause]) -> list[Cause]:
        """Sets and map lists, then the rules, which are not run on what is broken already."""
        twice = validation.find_duplicates(obj, self.schema)
        if twice and (old is None or not validation.find_duplicates(old, self.schema)):
            found += twice
        if not self.with_rules:
            return found
        if any(cause.reason in BLOCKING for cause in found):
            return [*found, UNCHECKED]
        from matrixcontainer.kubeapi import cel

        return found + cel.check(self.schema, obj, old)


BLOCKING = frozenset(
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"]
)
UNCHECKED = errors.invalid(
    "<nil>",
    "null",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)
