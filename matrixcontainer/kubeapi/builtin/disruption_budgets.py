"""PodDisruptionBudgets as the API keeps them; their checks stand with the other rules."""

from typing import Any

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.options import Options


class BudgetStrategy(BuiltinStrategy):
    unconditional_update = False

    def prepare_create(self, obj: dict[str, Any], resource: Any) -> None:
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


BUDGETS = "poddisruptionbudgets.policy"


def status_options() -> Options:
    """Whoever writes the status of a budget (the controller, an eviction) is the disruption controller."""
    return Options(
        user="system:serviceaccount:kube-system:disruption-controller",
        field_manager="kube-controller-manager",
        from_controller=True,
        subresource="status",
    )


def selects(budget: dict[str, Any], pod: dict[str, Any]) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return matches_label_selector(selector, pod["metadata"].get("labels") or {})


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
