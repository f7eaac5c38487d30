"""Disruption budgets, as administrators have set them."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetSpec, DisruptionBudgetView
from matrixcompute.store.declared import DeclaredRow
from matrixcompute.store.store import Base


class DisruptionBudgetRow(DeclaredRow, Base):
    """One budget. Its state is always Active, even outside its time window."""

    __tablename__ = "disruption_budgets"
    kind = "disruption budget"

    @property
    def budget(self) -> DisruptionBudgetRequest:
        return DisruptionBudgetRequest.from_stored(self.spec)

    def view(self) -> DisruptionBudgetView:
        budget = self.budget
        return self.view_as(
            DisruptionBudgetView, **{field: getattr(budget, field) for field in DisruptionBudgetSpec.model_fields}
        )


def disruption_budgets(session: Session) -> dict[str, DisruptionBudgetSpec]:
    """All budgets, by name."""
    return {row.name: row.budget for row in session.scalars(select(DisruptionBudgetRow))}
