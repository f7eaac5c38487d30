"""Objects embedded in custom objects (x-kubernetes-embedded-resource), whose metadata follow the same rules."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import path_segment_error
from matrixcontainer.kubeapi.schema import validation
from matrixcontainer.kubeapi.schema.structural import Schema, drop_nulls, prune
from matrixcontainer.kubeapi.schema.types import schema_of

METADATA = "meta.v1.ObjectMeta"


def clean_embedded(value: Any, schema: Schema, unknown: list[str]) -> None:
    """Drop unknown metadata fields of embedded objects, in place."""
    for current, where in _embedded(value, schema, ""):
        drop_nulls(current.get("metadata"), schema_of(METADATA))
        prune(current.get("metadata"), schema_of(METADATA), f"{where}.metadata", unknown)


def check_embedded(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Errors in apiVersion, kind and metadata of embedded objects."""
    causes: list[Cause] = []
    for current, where in _embedded(value, schema, path):
        for key in ("apiVersion", "kind"):
            if key not in current:
                causes.append(errors.required(f"{where}.{key}", "must not be empty"))
            elif not current[key] or not isinstance(current[key], str):
                causes.append(errors.invalid(f"{where}.{key}", current[key], "must not be empty"))
        if (meta := current.get("metadata")) is not None:
            is_invalid = validation.validate(meta, schema_of(METADATA), below=f"{where}.metadata")
            causes += is_invalid or _check_metadata(meta, where)
    return causes


def _check_metadata(meta: dict[str, Any], where: str) -> list[Cause]:
    from matrixcontainer.kubeapi.registry.object_meta import check_metadata

    inner: Any = SimpleNamespace(strategy=SimpleNamespace(check_name=path_segment_error), custom=True)
    causes = check_metadata({"metadata": {"name": "fakename"} | meta}, inner)
    return [Cause(cause.reason, cause.message, f"{where}.{cause.field}") for cause in causes]


def _embedded(value: Any, schema: Schema, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """All embedded objects with their paths."""
    if not schema.has_embedded():
        return
    if isinstance(value, dict):
        if schema.embedded:
            yield value, path
        for key, item in value.items():
            if (child := schema.child(key)) is not None:
                yield from _embedded(item, child, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _embedded(item, schema.items, f"{path}[{index}]")
