"""Operations: the verbs over a service's workflows, as its users ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.persistence.database_session import find
from matrixcommon.workflows import verbs
from matrixcommon.workflows.contract import OperationRecord
from matrixcommon.workflows.host import Host, R
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcommon.workflows.workflow import C


class Operations(Generic[C, R]):
    """`wake` is called after one was changed that may have no task, for the runner to take it up at once."""

    def __init__(self, runner: WorkflowRunner[C, R], host: Host[C, R], clock: Clock, wake: Callable[[], None]) -> None:
        self._runner = runner
        self.host = host
        self._clock = clock
        self._wake = wake

    def row(self, session: Session, name: str) -> R:
        return find(session, self.host.row, name)

    def cancel(self, name: str) -> OperationRecord:
        """Roll an operation back: what it did is undone. Raises Conflict where it cannot be cancelled (any more)."""
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            verbs.cancel(self._runner.workflows, row)
            if (target := self.host.target(session, row)) is not None:
                self.host.cancelled(session, row, target)
        self._runner.nudge(row.target)
        self._wake()
        return row.view()

    def resume(self, name: str) -> OperationRecord:
        """Have an operation that is stuck tried again. Raises Conflict where it is not, or that would not help."""
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            verbs.unstick(row, self._clock.now())
        self._runner.nudge(row.target)
        self._wake()
        return row.view()

    def abandon(self, name: str, why: str) -> OperationRecord:
        """Give an operation up where it stands, without undoing what it did: the way out where its steps, or what
        undoes them, will never succeed. Raises Conflict for what is never given up, and for what has ended."""
        now = self._clock.now()
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            target = self.host.target(session, row)
            if target is not None and row.state in verbs.OPEN:
                self.host.check_abandon(row, target)
            reason = verbs.abandon(row, why, now)
            if target is not None:
                self.host.abandoned(session, row, target, reason, now)
            self.host.record_event(session, row, reason.reason, reason.message, now, warning=True)
        self._wake()
        return row.view()
