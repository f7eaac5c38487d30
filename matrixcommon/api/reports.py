"""Batches of agents' reports: each is validated by itself, so that one agent cannot make others' reports fail."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.validation import validation_message

Count = Annotated[int, Field(ge=0, le=2**53)]
"""Up to the largest integer that every JSON parser and database represents exactly."""


class UnreadableReport(ApiModel):
    """Replaces a report of `node` that is invalid; `message` says which field and why."""

    node: str = Field(description="node that the report names as its own, cut to 80 characters")
    message: str = Field(description="first field that is wrong, and why")


def _validate_item(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as wrong:
        node = value.get("node") if isinstance(value, dict) else None
        if not isinstance(node, str):
            raise
        first = wrong.errors()[0]
        field = ".".join(map(str, first["loc"]))
        return UnreadableReport(node=node[:80], message=f"{field}: {validation_message(first)}"[:300])


ItemsValidatedSeparately = WrapValidator(_validate_item)
"""Annotates the items of a batch: an invalid item that names its node becomes an UnreadableReport."""
