"""What is asked and shown of operations: workflows, as users see them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from matrixcommon.model.resource_model import ApiModel, OperationView, ResourceView


class StepView(ApiModel):
    """One step of an operation: how far it is, how often it failed, and what it said last."""

    name: str
    state: Literal["Waiting", "Running", "Done", "Undoing", "Undone", "Failed", "Cancelled"]
    attempts: int = Field(0, description="how often it failed")
    started_at: str | None = None
    finished_at: str | None = Field(None, description="when it was done, or undone")
    message: str = Field("", description="what it waits for, or why it failed last")


class OperationRecord(ResourceView, OperationView):
    """An operation as it is listed: everything a resource has, and where the work is."""

    message: str = ""
    steps: list[StepView] = Field(default_factory=list)


class AbandonRequest(ApiModel):
    """Why an operation is given up: kept with it, and in the events of what it was over."""

    reason: str = Field(min_length=1, max_length=200, description="why, for whoever looks at it later")
