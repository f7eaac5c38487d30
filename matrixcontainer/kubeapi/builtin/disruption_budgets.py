"""PodDisruptionBudgets as the API keeps them; their checks stand with the other rules."""

from typing import Any

from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.strategy import Strategy


class BudgetStrategy(Strategy):
    unconditional_update = False

    def prepare_create(self, obj: dict[str, Any], resource: Any) -> None:
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


BUDGETS = "poddisruptionbudgets.policy"


def selects(budget: dict[str, Any], pod: dict[str, Any]) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return matches_label_selector(selector, pod["metadata"].get("labels") or {})


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
