"""PodDisruptionBudgets as the API keeps them; their checks stand with the other rules."""

from typing import Any

from matrixcontainer.kubeapi.strategy import Strategy


class BudgetStrategy(Strategy):
    unconditional_update = False

    def prepare_create(self, obj: dict[str, Any], resource: Any) -> None:
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
