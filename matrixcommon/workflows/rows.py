"""WorkflowRow: the row of a workflow, in progress or ended; shown to users as an operation."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import JSON, Float, Integer, Select, String, Text, bindparam, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.quantities import parse_timestamp, timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.resource_row import ResourceRow
from matrixcommon.workflows.contract import OperationRecord, WorkflowDrainView
from matrixcommon.workflows.progress import step_views

FORWARD = ("Waiting", "Running")
"""States of an operation with steps ahead of it. Waiting: a drain keeps it from starting, or from continuing."""

OPEN = (*FORWARD, "Undoing")
"""States of an operation in progress, which is resumed after a crash; it ends as Done, Failed or Cancelled."""

STUCK = "Stuck"
"""The condition of an operation that makes no progress: this release cannot resume it, a step failed too often, or it
or one of its steps exceeds its deadline."""


class WorkflowDrainRow(ResourceRow):
    """A drain of a service's engine, with the last counts of workflows that still run, that rest at a safe point, and
    that were requested meanwhile and wait to start."""

    kind = "workflow drain"

    reason: Mapped[str] = mapped_column(String(300), default="")
    grace_s: Mapped[float] = mapped_column(Float, default=0.0)
    running: Mapped[int] = mapped_column(Integer, default=0)
    resting: Mapped[int] = mapped_column(Integer, default=0)
    waiting: Mapped[int] = mapped_column(Integer, default=0)

    def view(self) -> WorkflowDrainView:
        return self.view_as(WorkflowDrainView)


V = TypeVar("V", bound=OperationRecord)
W = TypeVar("W", bound="WorkflowRow")


class WorkflowRow(ResourceRow):
    """One run of a workflow. `step` is the number of `steps` done (or, while undoing, the index of the one being
    undone). A service's table derives from it and may add columns for the payload of its workflows."""

    kind = "operation"

    verb: Mapped[str] = mapped_column(String(40))
    target: Mapped[str] = mapped_column(String(127), index=True)
    state: Mapped[str] = mapped_column(String(40), default="", index=True)
    step: Mapped[int] = mapped_column(Integer, default=0)
    steps: Mapped[list[str]] = mapped_column(JSON, default=list)
    message: Mapped[str] = mapped_column(Text, default="")
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    parameters: Mapped[dict[str, str] | None] = mapped_column(JSON)
    """Parameters of the workflow besides its target."""
    finished_at: Mapped[float | None] = mapped_column(Float)
    definition: Mapped[str | None] = mapped_column(String(12))
    """The hash of the definition that the workflow was started with (`Workflow.definition`)."""
    trace: Mapped[dict[str, dict[str, Any]] | None] = mapped_column(JSON)
    """The progress of each step, by name (see `progress`)."""

    @property
    def reached(self) -> str:
        """The name of the current step."""
        return self.steps[min(self.step, len(self.steps) - 1)]

    @property
    def stuck(self) -> dict[str, Any] | None:
        """Its condition Stuck, if that is true."""
        found = (each for each in self.conditions or [] if each["type"] == STUCK and each["status"] == "True")
        return next(found, None)

    @property
    def timed_from(self) -> float:
        """When it was started or last resumed (s, emulated); its deadline counts from here."""
        begun = (self.trace or {}).get(self.steps[0], {}).get("startedAt", self.created_at or 0.0)
        resumed = (each for each in self.conditions or [] if (each["type"], each["status"]) == (STUCK, "False"))
        return max([begun, *(parse_timestamp(each["lastTransitionTime"]) for each in resumed)])

    def view(self) -> OperationRecord:
        return self.view_of(OperationRecord)

    def view_of(self, view: type[V], **more: Any) -> V:
        done = self.state not in OPEN
        return self.view_as(
            view,
            target=name_of(self.target),
            done=done,
            step="" if done else self.reached,
            progress=round(self.step / max(1, len(self.steps)), 3),
            steps=step_views(self.steps, self.trace, self.step, self.state),
            started_at=timestamp(self.created_at or 0.0),
            finished_at=timestamp(self.finished_at) if self.finished_at else None,
            **more,
        )


def open_workflows(session: Session, kind: type[W], target: str | None = None) -> list[W]:
    """The workflows in progress, oldest first; of one target, or all."""
    asked = _open_query(cast(Hashable, kind), target is not None)
    return list(session.scalars(asked, {} if target is None else {"target": target}))


@cache
def _open_query(kind: Any, of_one_target: bool) -> Select[Any]:
    wanted = select(kind).where(kind.state.in_(OPEN)).order_by(kind.version)
    return wanted.where(kind.target == bindparam("target")) if of_one_target else wanted


def delete_ended_workflows(session: Session, kind: type[W], before: float) -> int:
    """Delete workflows that ended before a time (s, emulated) and return how many."""
    old = list(session.scalars(select(kind).where(kind.finished_at < before)))
    for row in old:
        session.delete(row)
    return len(old)
