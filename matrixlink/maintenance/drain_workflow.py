"""The workflow of a drain: reroute around its elements, wait for every agent's acknowledgement, mark it Drained.

If it is cancelled or refused, the elements return to service and the drain is Restored, until it is deleted or
requested again.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from matrixcommon.workflows.host import Host
from matrixcommon.workflows.workflow import Step, StepPending, Workflow
from matrixlink.maintenance.drained_elements import DrainedElements
from matrixlink.store.tables import DRAINED, DRAINING, RESTORED, DrainRow, OperationRow, WorkflowDrains

CHECK_INTERVAL_S = 5.0
"""How often acknowledgements are checked when no agent's report triggers it earlier."""


@dataclass(frozen=True)
class DrainContext:
    """What a step works on: the drain, and the fabric."""

    target: str
    elements: DrainedElements


async def reroute_slices(work: DrainContext) -> None:
    """Make sure that every slice has routes around the elements. The request did this already, in the transaction that
    evaluated it, since a new slice might otherwise take what the others need; whatever has changed since is handled
    here."""
    with work.elements.promises.transaction() as session:
        if session.get(DrainRow, work.target) is not None:
            work.elements.apply(session)


async def put_back(work: DrainContext) -> None:
    """Return the elements to service; routes return to them."""
    with work.elements.promises.transaction() as session:
        row = session.get(DrainRow, work.target)
        if row is not None and row.state != RESTORED:
            row.state, row.waiting_for, row.message = RESTORED, 0, "in service again"
            work.elements.apply(session)


async def await_acknowledgements(work: DrainContext) -> None:
    """Wait until no agent holds a route over the elements."""
    with work.elements.store.transaction() as session:
        row = session.get(DrainRow, work.target)
        if row is None:
            return
        work.elements.update_waiting(session, row)
    if row.waiting_for:
        raise StepPending(row.message, again_s=CHECK_INTERVAL_S)


async def mark_drained(work: DrainContext) -> None:
    """Mark the drain Drained: maintenance may begin."""
    await await_acknowledgements(work)
    with work.elements.store.transaction() as session:
        row = session.get(DrainRow, work.target)
        if row is not None and row.state == DRAINING:
            row.state = DRAINED


DRAIN = Workflow(
    "drain-elements",
    (Step(reroute_slices, undo=put_back), Step(await_acknowledgements), Step(mark_drained)),
    committed_at="mark_drained",
)
WORKFLOWS = {DRAIN.verb: DRAIN}


class DrainHost(Host[DrainContext, OperationRow]):
    """Workflows over drains."""

    row, targets, drains = OperationRow, DrainRow, WorkflowDrains

    def __init__(self, elements: DrainedElements) -> None:
        super().__init__(elements.store)
        self._elements = elements

    def context(self, session: Session, row: OperationRow) -> DrainContext:
        return DrainContext(row.target, self._elements)

    def record_event(
        self, session: Session, row: OperationRow, reason: str, message: str, at: float, warning: bool = False
    ) -> None:
        self._elements.store.record_event(session, row.target, reason, message, at, warning)
