"""PodDisruptionBudgets: how many selected pods are healthy, must be healthy, and may be evicted now.

Maintains the `status` of every PodDisruptionBudget. The eviction subresource decrements `disruptionsAllowed` and lists
the pod in `disruptedPods` until it is gone or two minutes have passed. A namespace is recounted whenever a pod, budget
or owner in it changes. Contract: public documentation "Disruptions" and "Specifying a Disruption Budget".
"""

import math
from typing import Any

from matrixcontainer.kubeapi.builtin.disruption_budgets import BUDGETS, is_ready, selects
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.jsonpath import compile_path
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.storage.objects import Change

OWNERS = frozenset(("replicasets.apps", "deployments.apps", "statefulsets.apps", "replicationcontrollers"))
EVICTION_EXPIRY_S = 120.0


class DisruptionController(Controller):
    """Reconciles all budgets of a namespace together; the key is the namespace."""

    storage = BUDGETS
    account = "disruption-controller"

    def load(self) -> None:
        for record in self.core.store.objects_of(BUDGETS):
            self.enqueue((record.key[1], ""))

    def on_change(self, change: Change) -> None:
        storage, namespace, _ = change.record.key
        if storage == BUDGETS or (
            (storage == "pods" or storage in OWNERS) and self.core.store.objects_of(BUDGETS, namespace)
        ):
            self.enqueue((namespace, ""))

    async def reconcile(self, key: Name) -> float | None:
        namespace = key[0]
        budgets = self.core.store.objects_of(BUDGETS, namespace)
        if not budgets:
            return None
        pods = [record.obj for record in self.core.store.objects_of("pods", namespace)]

        def update_status(budget: dict[str, Any]) -> dict[str, Any]:
            return self._with_status(budget, pods)

        await attempt_all((self.modify(record.key[1:], update_status, "status") for record in budgets), 404, 409)
        return self._seconds_until_expiry(namespace)

    def _seconds_until_expiry(self, namespace: str) -> float | None:
        """Seconds until the first eviction without effect expires and is available again; None without evictions."""
        statuses = [record.obj.get("status") or {} for record in self.core.store.objects_of(BUDGETS, namespace)]
        evicted = [parse_timestamp(at) for status in statuses for at in (status.get("disruptedPods") or {}).values()]
        return min(evicted) + EVICTION_EXPIRY_S - self.core.now() if evicted else None

    def _with_status(self, budget: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, Any]:
        now = self.core.now()
        selected = [
            pod for pod in pods if selects(budget, pod) and pod.get("status", {}).get("phase") not in TERMINAL_PHASES
        ]
        names = {pod["metadata"]["name"] for pod in selected if "deletionTimestamp" not in pod["metadata"]}
        current = (budget.get("status") or {}).get("disruptedPods") or {}
        disrupted = {
            name: at for name, at in current.items() if name in names and parse_timestamp(at) + EVICTION_EXPIRY_S > now
        }
        healthy = sum(is_healthy(pod) and pod["metadata"]["name"] not in disrupted for pod in selected)
        expected, desired = self._required(budget, selected)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        status: dict[str, Any] = {
            "observedGeneration": budget["metadata"].get("generation", 1),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": [dict(one) for one in (budget.get("status") or {}).get("conditions") or []],
        }
        reason = "SufficientPods" if allowed else "InsufficientPods"
        set_condition(status, "DisruptionAllowed", str(bool(allowed)), reason, "", now)
        (condition,) = (one for one in status["conditions"] if one["type"] == "DisruptionAllowed")
        condition["observedGeneration"] = status["observedGeneration"]
        return budget | {"status": status | ({"disruptedPods": disrupted} if disrupted else {})}

    def _required(self, budget: dict[str, Any], pods: list[dict[str, Any]]) -> tuple[int, int]:
        """(pods that should exist, pods that must be healthy)."""
        spec = budget.get("spec") or {}
        if "maxUnavailable" in spec:
            expected = self._expected_replicas(pods)
            return expected, max(0, expected - scaled_value(spec["maxUnavailable"], expected))
        min_available = spec.get("minAvailable", 1)
        expected = len(pods) if isinstance(min_available, int) else self._expected_replicas(pods)
        return expected, scaled_value(min_available, expected)

    def _expected_replicas(self, pods: list[dict[str, Any]]) -> int:
        """Total replicas of the pods' owners; a pod without an owner counts as one."""
        total, seen = 0, set()
        for pod in pods:
            owner = self._top_owner(pod)
            if owner is None:
                total += 1
            elif owner["metadata"]["uid"] not in seen:
                seen.add(owner["metadata"]["uid"])
                total += self._replicas(owner)
        return total

    def _top_owner(self, obj: dict[str, Any]) -> dict[str, Any] | None:
        """The topmost scalable owner, such as the Deployment above a ReplicaSet."""
        top = None
        for _ in range(4):
            ref = next((o for o in obj["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
            resource = self.core.registry.by_kind(ref["apiVersion"], ref["kind"]) if ref else None
            if ref is None or resource is None or resource.scale is None:
                break
            record = self.core.store.get((resource.storage, obj["metadata"].get("namespace", ""), ref["name"]))
            if record is None or record.uid != ref["uid"]:
                break
            obj = top = resource.served_object(record)
        return top

    def _replicas(self, owner: dict[str, Any]) -> int:
        resource = self.core.registry.by_kind(owner["apiVersion"], owner["kind"])
        paths = resource.scale if resource else None
        return int(compile_path(paths.spec).first(owner) or 0) if paths else 0


TERMINAL_PHASES = ("Succeeded", "Failed")


def is_healthy(pod: dict[str, Any]) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def scaled_value(value: int | str, total: int) -> int:
    """A count or a percentage of `total`, rounded up."""
    if isinstance(value, int):
        return value
    return math.ceil(int(value.rstrip("%") or 0) * total / 100)
