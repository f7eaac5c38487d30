"""Batches of agents' reports: each is read and judged by itself, so that one agent cannot fail what others report."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from matrixcommon.model.resource_model import ApiModel

Count = Annotated[int, Field(ge=0, le=2**53)]
"""As large as a number can be that every JSON reader and every database keeps exactly."""


class UnreadableReport(ApiModel):
    """What stands for a report of `node` that cannot be read; `message` says which field and why."""

    node: str
    message: str


def _by_itself(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as wrong:
        node = value.get("node") if isinstance(value, dict) else None
        if not isinstance(node, str):
            raise
        first = wrong.errors()[0]
        field = ".".join(map(str, first["loc"]))
        return UnreadableReport(node=node[:80], message=f"{field}: {first['msg']}"[:300])


EachByItself = WrapValidator(_by_itself)
"""Annotates the items of a batch: an item that names its node and cannot be read becomes an UnreadableReport."""
