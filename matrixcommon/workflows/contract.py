"""The wire shapes of operations: workflows as users see them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel, OperationView, ResourceView


class StepView(ApiModel):
    """One step of an operation: its state, how often it failed, and its last message."""

    name: str
    state: Literal["Waiting", "Running", "Done", "Undoing", "Undone", "Failed", "Cancelled"]
    attempts: int = Field(0, description="how often it failed")
    started_at: str | None = None
    finished_at: str | None = Field(None, description="when it was done or undone")
    message: str = Field("", description="what it waits for, or why its last attempt failed")


class OperationRecord(ResourceView, OperationView):
    """An operation: the fields of every resource, and the progress of its steps."""

    message: str = ""
    steps: list[StepView] = Field(default_factory=empty_list)


class AbandonRequest(ApiModel):
    """Why an operation is abandoned; kept with it and in the events of its target."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "its node is being scrapped"},)

    reason: str = Field(min_length=1, max_length=200, description="why, for those who look at it later")


class WorkflowDrainRequest(ApiModel):
    """Bring the service's workflows to rest, before an upgrade for example. No workflow starts while there is a drain.
    Those in progress continue; any still running after `graceSeconds` (emulated) stops at its next safe point, between
    two attempts, and continues from there when no drain is left."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "release 8", "graceSeconds": 600},)

    reason: str = Field("", max_length=300, description="why; shown with the drain")
    grace_s: float = Field(600.0, alias="graceSeconds", ge=0, le=86_400)


class WorkflowDrainView(ResourceView):
    """The progress of a drain: Draining while any workflow runs, then Drained. The counts are of workflows."""

    reason: str = ""
    grace_s: float = Field(alias="graceSeconds")
    running: int = Field(description="in progress; the drain is Drained when there are none")
    resting: int = Field(description="stopped at a safe point; they continue when the drain is deleted")
    waiting: int = Field(description="requested meanwhile; they start when the drain is deleted")
