"""Status conditions."""

from typing import Any

from matrixcontainer.kubeapi.meta.timestamps import timestamp


def set_condition(status: dict[str, Any], kind: str, value: str, reason: str, message: str, now: float) -> None:
    """Set a condition in place; lastTransitionTime changes only with its status."""
    conditions = status["conditions"] = status.get("conditions") or []
    fresh = {"type": kind, "status": value, "lastTransitionTime": timestamp(now), "reason": reason, "message": message}
    for index, current in enumerate(conditions):
        if current["type"] == kind:
            if current["status"] == value:
                fresh["lastTransitionTime"] = current.get("lastTransitionTime", fresh["lastTransitionTime"])
            conditions[index] = fresh
            return
    conditions.append(fresh)
