"""DisruptionBudgets: a budget of MatrixCompute for each resource, under the same name.

Budgets are cluster-scoped, as nodes are, and administrators' in both places. The resource owns the budget: what is
written to it over REST is undone at the next look, and it is gone with the resource.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcompute.client import ComputeClient
from matrixcompute.maintenance.budgets import DisruptionBudgetView
from matrixcontainer.client.client import DISRUPTION_BUDGET, KubeClient
from matrixcontainer.operator.reconciler import GONE_WALL_S, Reconciler


class DisruptionBudgetReconciler(Reconciler):
    """A resource's budget in MatrixCompute."""

    kind = DISRUPTION_BUDGET

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self._compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            return None if await self._compute.delete_budget(key) else GONE_WALL_S
        labels = body["metadata"].get("labels") or {}
        budget = await self._compute.ensure_budget(key, {**body["spec"], "labels": labels})
        await self.report_ready(body, budget.state, True, "Declared", in_words(budget))
        return None

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """The field is named as in the resource."""
        if refused.field:
            at = "metadata" if refused.field == "name" else "spec"
            refused.message = f"{at}.{refused.field}: {refused.message}"
        await super().report_refusal(key, body, refused, passes)


def in_words(budget: DisruptionBudgetView) -> str:
    """What it limits, and when."""
    where = f"of {budget.supernode}" if budget.supernode else "of each supernode"
    when = f"for {budget.duration_s:g} s from {budget.schedule} on" if budget.duration_s else "at all times"
    return f"at most {budget.nodes} nodes {where} are out for {' or '.join(budget.reasons)}, {when}"
