"""Taints from node conditions: NoSchedule while a node is not ready, under pressure or cordoned.

A new node has the not-ready taint from its creation until its first Ready=True. Taints with other keys or effects are
not changed.
"""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta.timestamps import timestamp

Obj = dict[str, Any]

PREFIX = "node.kubernetes.io/"
CONDITION_TAINTS = {  # (condition, status): key
    ("Ready", "False"): f"{PREFIX}not-ready",
    ("Ready", "Unknown"): f"{PREFIX}unreachable",
    ("MemoryPressure", "True"): f"{PREFIX}memory-pressure",
    ("DiskPressure", "True"): f"{PREFIX}disk-pressure",
    ("PIDPressure", "True"): f"{PREFIX}pid-pressure",
    ("NetworkUnavailable", "True"): f"{PREFIX}network-unavailable",
}
UNSCHEDULABLE = f"{PREFIX}unschedulable"
MANAGED_KEYS = {*CONDITION_TAINTS.values(), UNSCHEDULABLE}


def desired_taints(node: Obj, now: float) -> list[Obj]:
    """The taints that the node should have; existing ones keep their timeAdded."""
    current = (node.get("spec") or {}).get("taints") or []
    conditions = {c["type"]: c["status"] for c in (node.get("status") or {}).get("conditions") or []}
    desired_keys = {key for condition, key in CONDITION_TAINTS.items() if condition in conditions.items()}
    if "Ready" not in conditions:
        desired_keys |= {taint["key"] for taint in current} & {
            CONDITION_TAINTS["Ready", "False"],
            CONDITION_TAINTS["Ready", "Unknown"],
        }
    if (node.get("spec") or {}).get("unschedulable"):
        desired_keys.add(UNSCHEDULABLE)
    kept = [
        t
        for t in current
        if t.get("effect") != "NoSchedule" or t["key"] not in MANAGED_KEYS or t["key"] in desired_keys
    ]
    missing = desired_keys - {taint["key"] for taint in kept if taint.get("effect") == "NoSchedule"}
    return kept + [{"key": key, "effect": "NoSchedule", "timeAdded": timestamp(now)} for key in sorted(missing)]


class NodeTaintController(Controller):
    storage = "nodes"
    account = "node-controller"

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None or "deletionTimestamp" in record.obj["metadata"]:
            return None
        desired = desired_taints(record.obj, self.core.now())
        if desired == (record.obj["spec"].get("taints") or []):
            return None

        def change(obj: Obj) -> Obj:
            obj["spec"]["taints"] = desired_taints(obj, self.core.now())
            if not obj["spec"]["taints"]:
                del obj["spec"]["taints"]
            return obj

        await self.modify(key, change)
        return None
