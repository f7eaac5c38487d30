"""Reading what was taken once: of the structure that is declared, whatever its bounds.

A bound of a contract (a length, a range, a pattern, what a validator checks) is for what is asked. What was stored had
the bounds of its day; one that a later release makes stricter must not make it unreadable, and whole lists with it.
Fields, their types and words of a closed set are structure, which only a migration may change.
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
"""What a schema has beside other schemas, and that is none itself."""
CHECKS = frozenset({"function-after", "function-before", "function-wrap"})
"""Validators. One that wraps is called with the value and the way to go on with it."""

REFUSALS = (ValueError, AssertionError, MatrixError)
"""What a validator of ours refuses with; a ValidationError is the first of these."""


@cache
def reader(model: type[BaseModel]) -> SchemaValidator:
    """Makes one of what was stored. Built when the first is read that the model itself refuses."""
    model.model_rebuild()
    schema = model.__pydantic_core_schema__
    return SchemaValidator(cast(CoreSchema, without_bounds(schema)), config=_config_of(model, schema))


def without_bounds(schema: Any) -> Any:
    """A schema that takes the same and more. What a validator refuses, it leaves as it is."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(without_bounds, schema))
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if not isinstance(kind, str):  # fields or choices by their name, be it that of a bound
        return {name: without_bounds(inner) for name, inner in schema.items()}
    found = {
        name: inner if name in OPAQUE else without_bounds(inner) for name, inner in schema.items() if name not in BOUNDS
    }
    if kind == "model":  # pydantic would put the validator that the model has in the place of this one
        made = {"type": "no-info", "function": partial(_made, schema["cls"])}
        kept = {name: schema[name] for name in ("ref", "serialization") if name in schema}
        return {"type": "function-after", "function": made, "schema": found["schema"], **kept}
    if kind in CHECKS:
        found["function"] = {**schema["function"], "function": _lenient(schema["function"]["function"], kind)}
    return found


def _made(model: type[BaseModel], fields: tuple[dict[str, Any], dict[str, Any] | None, set[str]]) -> BaseModel:
    """The model of validated fields, by name: their values, what else there is (nothing), and which were set."""
    return model.model_construct(_fields_set=fields[2], **fields[0])


def _config_of(model: type[BaseModel], schema: Any) -> CoreConfig | None:
    """How the model reads; those in it read alike."""
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
        except REFUSALS:
            return more[0](value) if kind == "function-wrap" else value

    return checked
