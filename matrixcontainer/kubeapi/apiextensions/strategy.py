"""The strategy of custom objects: decoding, defaulting and validation by their CRD's schema and CEL rules."""

from typing import Any

from matrixcontainer.kubeapi.apiextensions import embedded_objects, scale_rules
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ABSENT, Cause
from matrixcontainer.kubeapi.registry.resource import ScalePaths
from matrixcontainer.kubeapi.registry.strategy import ResourceInfo, Strategy
from matrixcontainer.kubeapi.schema import structural, validation


class CustomStrategy(Strategy):
    """Strategy of a CRD version: structural pruning, defaults, validation with ratcheting, then CEL rules."""

    unconditional_update = False
    strategic = False

    def __init__(self, version_schema: structural.Schema, scale: ScalePaths | None = None) -> None:
        self.schema = version_schema
        self.scale = scale
        self.with_rules = version_schema.has_rules()

    def clean(self, obj: dict[str, Any], resource: ResourceInfo) -> list[str]:
        unknown: list[str] = []
        structural.prune_custom(obj, self.schema, "", unknown, root=True)
        deeper: list[str] = []
        embedded_objects.clean_embedded(obj, self.schema, deeper)
        return sorted(unknown) + sorted(deeper)

    def default(self, obj: dict[str, Any]) -> None:
        structural.apply_defaults(obj, self.schema)
        structural.drop_nulls(obj, self.schema)

    def refresh(self, obj: dict[str, Any], resource: ResourceInfo) -> None:
        structural.prune_custom(obj, self.schema, "", [], root=True)
        structural.apply_defaults(obj, self.schema)

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
        causes = validation.validate(obj, self.schema, old=old if old is not None else ABSENT)
        if self.scale is not None:
            causes += scale_rules.validate_spec_replicas(obj, self.scale) + scale_rules.validate_status(obj, self.scale)
        return self._finish(obj, old, causes + embedded_objects.check_embedded(obj, self.schema))

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
        """Validate only the status, with paths that start at it."""
        causes: list[Cause] = []
        part = self.schema.properties.get("status")
        if "status" in obj and part is not None:
            before = old.get("status", ABSENT)
            causes += validation.validate(obj["status"], part, old=before, below="status")
        if self.scale is not None:
            causes += scale_rules.validate_status(obj, self.scale)
        return self._finish(obj, old, causes)

    def _finish(self, obj: dict[str, Any], old: dict[str, Any] | None, causes: list[Cause]) -> list[Cause]:
        """Add duplicates in sets and map lists, then CEL rules, which are skipped if the object is invalid already."""
        twice = validation.find_duplicates(obj, self.schema)
        if twice and (old is None or not validation.find_duplicates(old, self.schema)):
            causes += twice
        if not self.with_rules:
            return causes
        if any(cause.reason in BLOCKING_REASONS for cause in causes):
            return [*causes, UNVALIDATED_FIELDS]
        from matrixcontainer.kubeapi.cel import environment

        return causes + environment.check(self.schema, obj, old)


BLOCKING_REASONS = frozenset(
    ["FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"]
)


UNVALIDATED_FIELDS = errors.invalid(
    "<nil>",
    "null",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation",
)
