"""Disruption budgets, as administrators have set them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.persistence.database_session import ResourceRow
from matrixcompute.maintenance.budgets import DisruptionBudgetRequest, DisruptionBudgetSpec, DisruptionBudgetView
from matrixcompute.store.store import Base


class DisruptionBudgetRow(ResourceRow, Base):
    """One budget. It is Active whether it holds at present or not: time alone changes that."""

    __tablename__ = "disruption_budgets"
    kind = "disruption budget"

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)

    @property
    def budget(self) -> DisruptionBudgetRequest:
        return DisruptionBudgetRequest.model_validate(self.spec)

    def view(self) -> DisruptionBudgetView:
        budget = self.budget
        return self.view_as(
            DisruptionBudgetView, **{field: getattr(budget, field) for field in DisruptionBudgetSpec.model_fields}
        )


def disruption_budgets(session: Session) -> dict[str, DisruptionBudgetSpec]:
    """By name."""
    return {row.name: row.budget for row in session.scalars(select(DisruptionBudgetRow))}
