"""What a workflow records about the members it adds: where they come from, and how long they took.

The wait is stored with the instance, where the scaling policy finds it at every tick without reading operations.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import find
from matrixcommon.workflows.progress import with_entry
from matrixcompute.autoscaling.node_waits import NodeWaits, Source
from matrixcompute.operations.context import StepContext
from matrixcompute.store.store import InstanceRow, OperationRow
from matrixresource.contract.allocations import AllocationView

COMMITTED, READY = "reserve_nodes", "await_ready"
"""The wait for members lasts from the end of the first step to the end of the second."""
CREATE = "create-instance"


def record_source(context: StepContext, before: AllocationView | None, after: AllocationView) -> None:
    """Record where the members just committed come from. If the step is repeated after a crash that can no longer be
    seen, and the wait is left out."""
    if before is None or after.nodes <= before.nodes:
        return
    roles = {member.node: member.role for member in before.members}
    new = [each.node for each in after.members if each.role == "member" and roles.get(each.node) != "member"]
    source: Source = "spares" if all(roles.get(node) == "spare" for node in new) else "free"
    with context.store.transaction() as session:
        if (row := session.get(OperationRow, context.operation)) is not None:
            row.trace = with_entry(row.trace, COMMITTED, source=source)


def record_wait(context: StepContext, session: Session, instance: InstanceRow) -> None:
    """Record how long the members that this workflow added took, if it added any."""
    operation = find(session, OperationRow, context.operation)
    trace = operation.trace or {}
    source: Source | None = trace.get(COMMITTED, {}).get("source")
    if operation.verb == CREATE:
        source = "free"
    committed, ready = (trace.get(step, {}).get("finishedAt") for step in (COMMITTED, READY))
    if source is None or committed is None or ready is None or context.shape.power != "On":
        return
    waits = NodeWaits.of(instance.node_waits).with_wait(context.operation, source, ready - committed)
    instance.node_waits = waits.wire()
