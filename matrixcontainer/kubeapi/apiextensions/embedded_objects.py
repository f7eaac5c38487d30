"""Whole objects inside of custom ones (x-kubernetes-embedded-resource): the same rules apply to their metadata."""

from types import SimpleNamespace
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_label_1035, is_path_segment
from matrixcontainer.kubeapi.schema import validation
from matrixcontainer.kubeapi.schema.structural import Schema, drop_nulls, prune
from matrixcontainer.kubeapi.schema.types import schema_of


def clean_embedded(value: Any, schema: Schema, path: str, unknown: list[str]) -> list[Cause]:
    """Drop what metadata does not know, in place; what has a wrong type is returned."""
    found: list[Cause] = []
    for current, where in _embedded(value, schema, path):
        found += [
            errors.invalid(f"{where}.{key}", errors.as_go(current[key]), "must be a string")
            for key in ("apiVersion", "kind")
            if key in current and not isinstance(current[key], str)
        ]
        meta = current.get("metadata")
        if not isinstance(meta, dict):
            if meta is not None:
                text = "json: cannot unmarshal into Go value of type v1.ObjectMeta"
                found.append(errors.invalid(f"{where}.metadata", errors.as_go(meta), text))
            continue
        known = schema_of("meta.v1.ObjectMeta")
        drop_nulls(meta, known)
        prune(meta, known, f"{where}.metadata", unknown)
        for cause in validation.validate(meta, known):
            if cause.reason == "FieldValueTypeInvalid":
                text = f"json: cannot unmarshal into Go struct field ObjectMeta.{cause.field}"
                found.append(errors.invalid(f"{where}.metadata", errors.as_go(meta), text))
    return found


def check_embedded(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """What is wrong with the identity and the metadata of embedded objects."""
    found: list[Cause] = []
    for current, where in _embedded(value, schema, path):
        for key in ("apiVersion", "kind"):
            if key not in current:
                found.append(errors.required(f"{where}.{key}", "must not be empty"))
            elif not current[key]:
                found.append(errors.invalid(f"{where}.{key}", current[key], "must not be empty"))
        if current.get("kind") and (why := is_label_1035(str(current["kind"]).lower())):
            text = f"may have mixed case, but should otherwise match: {why}"
            found.append(errors.invalid(f"{where}.kind", current["kind"], text))
        if str(current.get("apiVersion", "")).count("/") > 1:
            text = f"unexpected GroupVersion string: {current['apiVersion']}"
            found.append(errors.invalid(f"{where}.apiVersion", current["apiVersion"], text))
        if isinstance(current.get("metadata"), dict):
            found += _check_metadata(current["metadata"], where)
    return found


def _check_metadata(meta: dict[str, Any], where: str) -> list[Cause]:
    from matrixcontainer.kubeapi.registry.object_meta import check_metadata

    inner: Any = SimpleNamespace(strategy=SimpleNamespace(check_name=is_path_segment), custom=True)
    found = check_metadata({"metadata": {"name": "fakename"} | meta}, inner)
    return [Cause(cause.reason, cause.message, f"{where}.{cause.field}") for cause in found]


def _embedded(value: Any, schema: Schema, path: str) -> list[tuple[dict[str, Any], str]]:
    """Every embedded object with its path."""
    if not schema.has_embedded():
        return []
    found: list[tuple[dict[str, Any], str]] = []
    if isinstance(value, dict):
        if schema.embedded:
            found.append((value, path))
        for key, item in value.items():
            if (child := schema.properties.get(key)) is not None:
                found += _embedded(item, child, f"{path}.{key}" if path else key)
            elif isinstance(schema.additional, Schema):
                found += _embedded(item, schema.additional, f"{path}[{key}]")
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            found += _embedded(item, schema.items, f"{path}[{index}]")
    return found
