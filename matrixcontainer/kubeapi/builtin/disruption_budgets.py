"""Strategy and validation of PodDisruptionBudgets, and helpers for the controller and for evictions."""

import re
from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import Obj, enum, rules
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.options import Options


class BudgetStrategy(BuiltinStrategy):
    unconditional_update = False

    def prepare_create(self, obj: dict[str, Any], resource: Any) -> None:
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


PERCENT = re.compile(r"^[0-9]+%$")
PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
BOUND_FIELDS = ("minAvailable", "maxUnavailable")


def validate_int_or_percent(current: int | str | None, path: str) -> Iterator[Cause]:
    """Errors unless the value is a non-negative count or a percentage of at most 100%."""
    if isinstance(current, str):
        if not PERCENT.fullmatch(current):
            yield errors.invalid(path, current, PERCENT_TEXT)
        elif int(current[:-1]) > 100:
            yield errors.invalid(path, current, "must not be greater than 100%")
    elif current is not None and current < 0:
        yield errors.invalid(path, current, "must be greater than or equal to 0")


def validate_spec(spec: Obj, path: str) -> Iterator[Cause]:
    if all(spec.get(key) is not None for key in BOUND_FIELDS):
        yield errors.invalid(path, spec, "minAvailable and maxUnavailable cannot be both set")
    for key in BOUND_FIELDS:
        yield from validate_int_or_percent(spec.get(key), f"{path}.{key}")


rules(
    "policy.v1.PodDisruptionBudgetSpec",
    validate_spec,
    enum("unhealthyPodEvictionPolicy", "AlwaysAllow", "IfHealthyBudget"),
)

BUDGETS = "poddisruptionbudgets.policy"


def status_options() -> Options:
    """Options for writes of a budget's status, by the controller or an eviction: both as the disruption controller."""
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
