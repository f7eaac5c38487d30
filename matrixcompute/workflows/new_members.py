"""What a workflow notes of the members it brings: where they come from, and how long they were waited for.

The wait is kept with the instance, where its scaling policy finds it at every look without reading operations.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import find
from matrixcommon.workflows.progress import noted
from matrixcompute.autoscaling.node_waits import NodeWaits, Source
from matrixcompute.operations.context import StepContext
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixresource.contract.allocations import AllocationView

COMMITTED, READY = "reserve_nodes", "await_ready"
"""The steps between whose ends members are waited for."""
CREATE = "create-instance"


def note_source(work: StepContext, before: AllocationView | None, after: AllocationView) -> None:
    """Where the members come from that were just committed. Asked again after a crash there is nothing to see of it any
    more, and such a wait is left out."""
    if before is None or after.nodes <= before.nodes:
        return
    roles = {member.node: member.role for member in before.members}
    new = [each.node for each in after.members if each.role == "member" and roles.get(each.node) != "member"]
    source: Source = "spares" if all(roles.get(node) == "spare" for node in new) else "free"
    with work.store.transaction() as session:
        if (row := session.get(OperationRow, work.operation)) is not None:
            row.trace = noted(row.trace, COMMITTED, source=source)


def note_wait(work: StepContext, session: Session, instance: InstanceRow) -> None:
    """How long the members that this workflow brought were waited for; nothing where it brought none."""
    operation = find(session, OperationRow, work.operation)
    trace = operation.trace or {}
    source: Source | None = trace.get(COMMITTED, {}).get("source")
    if operation.verb == CREATE:
        source = "free"
    committed, ready = (trace.get(step, {}).get("finishedAt") for step in (COMMITTED, READY))
    if source is None or committed is None or ready is None or work.shape.power != "On":
        return
    waits = NodeWaits.of(instance.node_waits).and_one(work.operation, source, ready - committed)
    instance.node_waits = waits.wire()
