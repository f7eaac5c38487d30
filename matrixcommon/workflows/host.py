"""Host: what a service gives the engine: its rows, what steps are given, and where it is noted what happened."""

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


class Unreadable(Exception):
    """This release cannot read what a workflow carries; the message says why."""


class Host(Generic[C, R]):
    """`row` is the service's table of workflows, `targets` the kind of row they are over, where they share one, and
    `drains` its table of drains of the engine."""

    row: type[R]
    targets: type[ResourceRow]
    drains: type[WorkflowDrainRow]

    payload: Mapping[str, Any] | None = None
    """The JSON schema of what a workflow carries besides its target, for the hash of its definition."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def opened(self, row: R, target: Any) -> None:
        """Before a workflow is written down: what it carries besides, and what its target knows of it."""

    def context(self, session: Session, row: R) -> C:
        """What its steps are given. Raises Unreadable."""
        raise NotImplementedError

    def target(self, session: Session, row: R) -> ResourceRow | None:
        """What a workflow is over; None where that is gone."""
        return session.get(self.targets, row.target)

    def under_way(self, session: Session, target: Any) -> list[R]:
        """The workflows over a target that have not ended: another one overtakes them."""
        return open_workflows(session, self.row, target.name)

    def rolled_back(self, session: Session, workflow: Workflow[C], row: R, refused: MatrixError, now: float) -> None:
        """In the transaction that ends a workflow that was rolled back: what its target is by now."""
        if (target := self.target(session, row)) is not None:
            self.record_event(session, row, refused.reason, refused.message, now, warning=True)
            workflow.refused(session, target, refused, now)

    def record_event(
        self, session: Session, row: R, reason: str, message: str, at: float, warning: bool = False
    ) -> None:
        """Note what happened to a workflow, for whoever looks at its target."""

    def cancelled(self, session: Session, row: R, target: Any) -> None:
        """Somebody cancels a workflow: what its target is to be by now."""

    def check_abandon(self, row: R, target: Any) -> None:
        """Raises Conflict where a workflow is never given up."""

    def abandoned(self, session: Session, row: R, target: Any, reason: Abandoned, now: float) -> None:
        """A workflow was given up where it stood: what its target is by now."""
