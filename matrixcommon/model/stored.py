"""Reading stored documents: the structure of the model is enforced, its bounds are not.

A bound (a length, a range, a pattern, a validator's check) applies to requests. A stored document met the bounds of its
day; a later release with a stricter bound must not make it unreadable, and with it whole lists. Fields, their types and
the values of enumerations are structure, which only a migration may change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator

from matrixcommon.model.errors import MatrixError

BOUNDS = frozenset({"ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern"})
OPAQUE = frozenset({"metadata", "serialization", "default", "expected", "cls", "config"})
"""Keys of a schema whose values are not schemas."""
VALIDATORS = frozenset({"function-after", "function-before", "function-wrap"})
"""Validators. A wrapping one is called with the value and the handler that continues validation."""

VALIDATION_ERRORS = (ValueError, AssertionError, MatrixError)
"""The exceptions that validators refuse a value with; a ValidationError is a ValueError."""


@cache
def stored_validator(model: type[BaseModel]) -> SchemaValidator:
    """A validator of stored documents. Built when the model itself first refuses one."""
    model.model_rebuild()
    schema = model.__pydantic_core_schema__
    return SchemaValidator(cast(CoreSchema, without_bounds(schema)), config=_config_of(model, schema))


def without_bounds(schema: Any) -> Any:
    """A schema that accepts the same and more: a value that a validator refuses passes unchanged."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(without_bounds, schema))
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if not isinstance(kind, str):  # fields or choices by name, which may coincide with that of a bound
        return {name: without_bounds(inner) for name, inner in schema.items()}
    found = {
        name: inner if name in OPAQUE else without_bounds(inner) for name, inner in schema.items() if name not in BOUNDS
    }
    if kind == "model":  # pydantic would replace this validator by the model's own
        made = {"type": "no-info", "function": partial(_construct, schema["cls"])}
        kept = {name: schema[name] for name in ("ref", "serialization") if name in schema}
        return {"type": "function-after", "function": made, "schema": found["schema"], **kept}
    if kind in VALIDATORS:
        found["function"] = {**schema["function"], "function": _lenient(schema["function"]["function"], kind)}
    return found


def _construct(model: type[BaseModel], fields: tuple[dict[str, Any], dict[str, Any] | None, set[str]]) -> BaseModel:
    """Build the model from its validated `fields`: values by name, extra values (none), and the names that were set."""
    return model.model_construct(_fields_set=fields[2], **fields[0])


def _config_of(model: type[BaseModel], schema: Any) -> CoreConfig | None:
    """The configuration of the model, which nested models share."""
    if isinstance(schema, dict):
        if schema.get("type") == "model" and schema["cls"] is model:
            return cast(CoreConfig, schema["config"])
        schema = [schema.get("schema"), *schema.get("definitions", ())]
    parts = schema if isinstance(schema, list) else ()
    return next((found for each in parts if (found := _config_of(model, each)) is not None), None)


def _lenient(check: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def checked(value: Any, *more: Any) -> Any:
        try:
            return check(value, *more)
        except VALIDATION_ERRORS:
            return more[0](value) if kind == "function-wrap" else value

    return checked
