"""DisruptionBudgets: ensure and delete. Maintenances follow a change from their next check."""

from __future__ import annotations

from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.persistence.database_session import find
from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetView
from matrixcompute.store.disruption_budgets import DisruptionBudgetRow
from matrixcompute.store.store import ComputeStore


class DisruptionBudgets:
    """The verbs over disruption budgets."""

    def __init__(self, store: ComputeStore) -> None:
        self._store = store

    def ensure(self, name: str, body: DisruptionBudgetRequest) -> DisruptionBudgetView:
        """Create or change a budget. Nodes that are out already stay out."""
        validate_resource_name(name)
        with self._store.transaction() as session:
            row = session.get(DisruptionBudgetRow, name)
            if row is None:
                row = DisruptionBudgetRow(name=name, state="Active", generation=1)
                session.add(row)
            row.declare(body)
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a budget, and with it its limit."""
        with self._store.transaction() as session:
            session.delete(find(session, DisruptionBudgetRow, name))
