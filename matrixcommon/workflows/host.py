"""Host: the interface that a service implements for the engine: its tables, the context of steps, and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Abandoned, MatrixError
from matrixcommon.persistence.database_session import Store
from matrixcommon.persistence.resource_row import ResourceRow
from matrixcommon.workflows.rows import WorkflowDrainRow, WorkflowRow, open_workflows
from matrixcommon.workflows.workflow import C, Workflow

R = TypeVar("R", bound=WorkflowRow)


class UnreadablePayload(Exception):
    """This release cannot read a workflow's payload; the message says why."""


class Host(Generic[C, R]):
    """`row` is the service's table of workflows, `targets` the kind of row that they act on, if they share one, and
    `drains` its table of drains of the engine."""

    row: type[R]
    targets: type[ResourceRow]
    drains: type[WorkflowDrainRow]

    payload: Mapping[str, Any] | None = None
    """The JSON schema of a workflow's payload, for the hash of its definition."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def opened(self, row: R, target: Any) -> None:
        """Called before a new workflow is recorded: set its payload, and what its target shows of it."""

    def context(self, session: Session, row: R) -> C:
        """The context passed to its steps. Raises Unreadable."""
        raise NotImplementedError

    def target(self, session: Session, row: R) -> ResourceRow | None:
        """The target of a workflow; None if that is gone."""
        return session.get(self.targets, row.target)

    def under_way(self, session: Session, target: Any) -> list[R]:
        """The workflows of a target that have not ended; a new one overtakes them."""
        return open_workflows(session, self.row, target.name)

    def on_rolled_back(self, session: Session, workflow: Workflow[C], row: R, refused: MatrixError, now: float) -> None:
        """Called in the transaction that ends a rolled-back workflow: update its target."""
        if (target := self.target(session, row)) is not None:
            self.record_event(session, row, refused.reason, refused.message, now, warning=True)
            workflow.refused(session, target, refused, now)

    def record_event(
        self, session: Session, row: R, reason: str, message: str, at: float, warning: bool = False
    ) -> None:
        """Record an event about a workflow, to be shown with its target."""

    def cancelled(self, session: Session, row: R, target: Any) -> None:
        """Called when a workflow is cancelled: update its target."""

    def check_abandon(self, row: R, target: Any) -> None:
        """Raise Conflict if a workflow must not be abandoned."""

    def on_abandoned(self, session: Session, row: R, target: Any, reason: Abandoned, now: float) -> None:
        """Called when a workflow is abandoned: update its target."""
