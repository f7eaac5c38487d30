"""The wire contract of operations, which are workflows as users see them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel, OperationView, ResourceView


class StepView(ApiModel):
    """One step of an operation: its state, how often it failed, and its last message."""

    name: str = Field(description="name of the step, unique within its operation")
    state: Literal["Waiting", "Running", "Done", "Undoing", "Undone", "Failed", "Cancelled"] = Field(
        description="how far it is; Failed if it was refused for good, or its operation ended in it"
    )
    attempts: int = Field(0, description="how often it failed")
    started_at: str | None = Field(None, description="when it started, in emulated time; null before")
    finished_at: str | None = Field(
        None, description="when it finished, or was undone, in emulated time; null if neither"
    )
    message: str = Field("", description="what it waits for, or why it last failed")


class OperationRecord(ResourceView, OperationView):
    """An operation as it is listed: the fields of every resource, and the progress of the work."""

    state: str = Field(
        "",
        description="Waiting while workflows are drained, Running, Undoing after a refusal or cancellation, Done, "
        "Failed or Cancelled",
    )
    message: str = Field("", description="what it waits for, or why it failed, is stuck or was cancelled; else empty")
    steps: list[StepView] = Field(default_factory=empty_list, description="its steps, in the order of execution")


class AbandonRequest(ApiModel):
    """Why an operation is abandoned. The reason is stored with it, and in the events of its target."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "its node is being scrapped"},)

    reason: str = Field(min_length=1, max_length=200, description="why, for people who look at it later")


class WorkflowDrainRequest(ApiModel):
    """Brings a service's workflows to rest, for example before an upgrade. While there is a drain no workflow begins.
    Those under way run to their end; any still running after `graceSeconds` (emulated) stops at its next safe point,
    between two attempts, and continues from there once no drain is left."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"reason": "release 8", "graceSeconds": 600},)

    reason: str = Field("", max_length=300, description="why; shown with the drain")
    grace_s: float = Field(
        600.0,
        alias="graceSeconds",
        ge=0,
        le=86_400,
        description="emulated seconds after which workflows still running stop at their next safe point",
    )


class WorkflowDrainView(ResourceView):
    """The progress of a drain: Draining while any workflow runs, then Drained. The counts are numbers of workflows."""

    state: str = Field("", description="Draining while any workflow runs, then Drained")
    reason: str = Field("", description="why the workflows are drained, as it was requested; empty if not given")
    grace_s: float = Field(
        alias="graceSeconds",
        description="emulated seconds after which workflows still running stop at their next safe point",
    )
    running: int = Field(description="workflows under way; the drain is Drained at 0")
    resting: int = Field(description="workflows stopped at a safe point; they continue when the drain is deleted")
    waiting: int = Field(description="workflows requested since; they begin when the drain is deleted")
