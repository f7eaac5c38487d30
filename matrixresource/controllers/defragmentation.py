"""Ends proposed defragmentation plans that are outdated."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixresource.defragmentation.plan_lifecycle import PlanLifecycle
from matrixresource.store.defragmentations import DefragmentationRow, in_state
from matrixresource.store.store import ResourceStore


def _proposed_plans(session: Session) -> list[DefragmentationRow]:
    return in_state(session, "Proposed")


class ProposedPlanReconciler:
    """`reconcile` runs periodically."""

    def __init__(self, store: ResourceStore, clock: Clock) -> None:
        self._store = store
        self._plans = PlanLifecycle(store, clock)

    async def reconcile(self) -> str:
        """Check every plan that has not been approved yet."""
        if not self._store.records.query_unless_known_empty(DefragmentationRow, _proposed_plans):
            return "no plans for review"
        ended = 0
        with self._store.transaction() as session:
            for row in _proposed_plans(session):
                if (why := self._plans.stale_reason(session, row)) is not None:
                    self._plans.end(session, row, "Stale", "StalePlan", why)
                    ended += 1
        return f"{ended} plans are stale"
