"""PodDisruptionBudgets: one bound, not two, and a count or a percentage in it."""

import re
from typing import Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.errors import Cause
from matrixcontainer.kubeapi.strategy import Strategy

PERCENT = re.compile(r"^[0-9]+%$")
PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


class BudgetStrategy(Strategy):
    def prepare_create(self, obj: dict[str, Any], resource: Any) -> None:
        obj["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        spec = obj.get("spec") or {}
        found: list[Cause] = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            found.append(errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for key in ("minAvailable", "maxUnavailable"):
            value = spec.get(key)
            where = f"spec.{key}"
            if isinstance(value, str):
                if not PERCENT.match(value):
                    found.append(errors.invalid(where, value, PERCENT_TEXT))
                elif int(value[:-1]) > 100:
                    found.append(errors.invalid(where, value, "must not be greater than 100%"))
            elif value is not None and value < 0:
                found.append(errors.invalid(where, value, "must be greater than or equal to 0"))
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
            allowed = ["AlwaysAllow", "IfHealthyBudget"]
            found.append(errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
        return found
