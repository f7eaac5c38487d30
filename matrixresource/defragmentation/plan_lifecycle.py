"""What every verb does to a plan: keep the nodes it needs, report its progress, end it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixresource.defragmentation.plan import blocking_reason
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.defragmentations import IN_PROGRESS, DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import current_version


class PlanLifecycle:
    """Used inside the caller's transaction."""

    def __init__(self, store: ResourceStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def nodes(self, session: Session, row: DefragmentationRow) -> dict[str, NodeRow]:
        """The nodes of a plan, by name."""
        steps = row.steps()
        names = {*row.room, *(step.source for step in steps), *(step.to for step in steps)}
        return {node.name: node for node in self._store.nodes(session, sorted(names))}

    def stale_reason(self, session: Session, row: DefragmentationRow) -> str | None:
        """Why a proposed plan is outdated; None if it is not."""
        if (version := current_version(session)) != row.topology_version:
            return f"the topology is now {version!r}, but the plan was made on {row.topology_version!r}"
        missing = [step for step in row.steps() if session.get(AllocationRow, step.allocation) is None]
        if missing:
            return f"{missing[0].allocation} is gone"
        return blocking_reason(row, self.nodes(session, row), self._store.nodes_with_parts(session))

    def sync_reserved_nodes(self, session: Session, row: DefragmentationRow) -> None:
        """Keep new work off the nodes that the plan needs."""
        needed = (
            {*row.room, *(step.to for step in row.steps() if step.open)} if row.state in IN_PROGRESS else set[str]()
        )
        for node in self._store.nodes(session):
            if node.name in needed or node.reserved_for_plan == row.name:
                node.reserved_for_plan = row.name if node.name in needed else None

    def end(self, session: Session, row: DefragmentationRow, state: str, reason: str, message: str) -> None:
        """End the plan and release the nodes it kept."""
        row.move(state)
        row.cancelling = False
        steps = row.steps()
        for step in steps:
            step.state = "Moved" if step.state == "Moved" else "Waiting"
        row.set_steps(steps)
        self.sync_reserved_nodes(session, row)
        self.record_progress(row, False, reason, message)

    def record_progress(self, row: DefragmentationRow, progressing: bool, reason: str, message: str) -> None:
        self.set_message(row, message)
        row.set_condition("Progressing", progressing, reason, message, self._clock.now())

    def set_message(self, row: DefragmentationRow, message: str) -> None:
        if row.message != message:
            row.message = message
