"""Disruption budgets, as administrators have set them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetSpec, DisruptionBudgetView
from matrixcompute.store.declared import DeclaredRow
from matrixcompute.store.store import Base

SUPERNODE_EXISTS = "SupernodeExists"
NAMED_MAX = 16


class DisruptionBudgetRow(DeclaredRow, Base):
    """One budget. It is Active, even outside its time window, unless it names a supernode that does not exist: Inactive
    until that is added."""

    __tablename__ = "disruption_budgets"
    kind = "disruption budget"

    @property
    def budget(self) -> DisruptionBudgetRequest:
        return DisruptionBudgetRequest.from_stored(self.spec)

    def update_state(self, supernodes: Collection[str], now: float) -> None:
        """Update its state from the supernodes that exist."""
        named = self.budget.supernode
        if named is None or named in supernodes:
            self.state = "Active"
            if self.find_condition(SUPERNODE_EXISTS) is not None:
                self.set_condition(SUPERNODE_EXISTS, True, "SupernodeAdded", "what it names exists", now)
            return
        self.state = "Inactive"
        known = f"; there are {', '.join(sorted(supernodes)[:NAMED_MAX])}" if supernodes else ""
        message = f"it limits nothing: there is no supernode {named} in the inventory{known}"
        self.set_condition(SUPERNODE_EXISTS, False, "NotFound", message, now)

    def view(self) -> DisruptionBudgetView:
        budget = self.budget
        return self.view_as(
            DisruptionBudgetView,
            message=self._missing_supernode(),
            **{field: getattr(budget, field) for field in DisruptionBudgetSpec.model_fields},
        )

    def _missing_supernode(self) -> str:
        found = self.find_condition(SUPERNODE_EXISTS)
        return "" if found is None or self.state == "Active" else str(found["message"])


def budgets_of_supernodes(session: Session) -> list[DisruptionBudgetRow]:
    """The budgets that name a supernode."""
    return [row for row in session.scalars(select(DisruptionBudgetRow)) if row.budget.supernode is not None]


def disruption_budgets(session: Session) -> dict[str, DisruptionBudgetSpec]:
    """All budgets, by name."""
    return {row.name: row.budget for row in session.scalars(select(DisruptionBudgetRow))}
