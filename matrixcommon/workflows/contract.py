"""What is asked and shown of operations: workflows, as users see them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
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
    steps: list[StepView] = Field(default_factory=empty_list)


class AbandonRequest(ApiModel):
    """Why an operation is given up: kept with it, and in the events of what it was over."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "its node is being scrapped"},)

    reason: str = Field(min_length=1, max_length=200, description="why, for whoever looks at it later")


class WorkflowDrainRequest(ApiModel):
    """The service's workflows come to rest, before an upgrade say: none begins while there is a drain. Those under way
    run to their end; what still runs after `graceSeconds` (emulated) stops at its next safe point, between two
    attempts, and continues from there once no drain is left."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "release 8", "graceSeconds": 600},)

    reason: str = Field("", max_length=300, description="why; shown with the drain")
    grace_s: float = Field(600.0, alias="graceSeconds", ge=0, le=86_400)


class WorkflowDrainView(ResourceView):
    """How far a drain is: Draining while any workflow runs, then Drained. Each count is of workflows."""

    reason: str = ""
    grace_s: float = Field(alias="graceSeconds")
    running: int = Field(description="under way; Drained when there is none")
    resting: int = Field(description="stopped at a safe point; they continue when the drain is deleted")
    waiting: int = Field(description="asked for meanwhile; they begin when the drain is deleted")
