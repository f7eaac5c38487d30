"""Operations: the verbs on a service's workflows, as its users request them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import parse_timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.model.resource_model import StuckView
from matrixcommon.persistence.database_session import find
from matrixcommon.persistence.table_cache import mapping_of
from matrixcommon.workflows import verbs
from matrixcommon.workflows.contract import OperationRecord, WorkflowDrainRequest, WorkflowDrainView
from matrixcommon.workflows.host import Host, R
from matrixcommon.workflows.rows import WorkflowRow, open_workflows
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcommon.workflows.workflow import C


class Operations(Generic[C, R]):
    """`wake` is called after an operation that may have no task was changed, so that the runner picks it up at once."""

    def __init__(self, runner: WorkflowRunner[C, R], host: Host[C, R], clock: Clock, wake: Callable[[], None]) -> None:
        self._runner = runner
        self.host = host
        self._clock = clock
        self.wake = runner.wake = wake

    def look_again(self) -> None:
        """Wake all workflows, after a request for something that they may wait for."""
        self._runner.nudge()
        self.wake()

    def row(self, session: Session, name: str) -> R:
        return find(session, self.host.row, name)

    def stuck(self) -> list[StuckView]:
        """The stuck operations, and why."""
        with self.host.store.reading() as session:
            return [_stuck_view(row, self._clock.now()) for row in open_workflows(session, self.host.row) if row.stuck]

    def drain(self, name: str, request: WorkflowDrainRequest) -> WorkflowDrainView:
        """Bring the service's workflows to rest. Repeating it updates the reason and the grace period."""
        validate_resource_name(name)
        with self.host.store.transaction() as session:
            row = session.get(self.host.drains, name)
            if row is None:
                row = mapping_of(self.host.drains).made(name=name, state="Draining")
                session.add(row)
            row.reason, row.grace_s = request.reason, request.grace_s
        self.wake()
        return row.view()

    def undrain(self, name: str) -> None:
        """End a drain. With the last one, resting workflows continue and waiting ones start."""
        with self.host.store.transaction() as session:
            session.delete(find(session, self.host.drains, name))
        self.wake()

    def cancel(self, name: str) -> OperationRecord:
        """Roll an operation back: what it did is undone. Raises Conflict if it cannot be cancelled (any more)."""
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            verbs.cancel(self._runner.workflows, row)
            if (target := self.host.target(session, row)) is not None:
                self.host.cancelled(session, row, target)
        self._runner.nudge(row.target)
        self.wake()
        return row.view()

    def resume(self, name: str) -> OperationRecord:
        """Retry a stuck operation. Raises Conflict if it is not stuck or a retry would not help."""
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            verbs.resume(row, self._clock.now())
        self._runner.nudge(row.target)
        self.wake()
        return row.view()

    def abandon(self, name: str, why: str) -> OperationRecord:
        """Abandon an operation without undoing what it did: the last resort if its steps, or their undoing, will never
        succeed. Raises Conflict if it has ended or is of a kind that is never abandoned."""
        now = self._clock.now()
        with self.host.store.transaction() as session:
            row = self.row(session, name)
            target = self.host.target(session, row)
            if target is not None and row.state in verbs.OPEN:
                self.host.check_abandon(row, target)
            reason = verbs.abandon(row, why, now)
            if target is not None:
                self.host.on_abandoned(session, row, target, reason, now)
            self.host.record_event(session, row, reason.reason, reason.message, now, warning=True)
        self.wake()
        return row.view()


def _stuck_view(row: WorkflowRow, now: float) -> StuckView:
    reported = row.stuck or {}
    return StuckView(
        name=name_of(row.target),
        project=row.project,
        state=row.state,
        seconds=round(now - parse_timestamp(reported["lastTransitionTime"]), 1),
        reason=reported["reason"],
        message=f"operation {name_of(row.name)}: {reported['message']}",
    )
