"""Decisions about DaemonSets, as pure functions: which nodes have a pod, which pods are created and deleted, and which
an update replaces next.

A pod belongs to a node before it is bound, by a node affinity that names it; the scheduler does the rest. A pod that is
being deleted still occupies its node, because two pods of one DaemonSet would fight over its ports and paths.
"""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.node_fit import matches_node_affinity, tolerates, untolerated_taint
from matrixcontainer.kubeapi.controllers.workloads.pod_control import pod_from_template
from matrixcontainer.kubeapi.controllers.workloads.rollout import int_or_percent
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import PodInfo

Obj = dict[str, Any]

HASH_LABEL = "controller-revision-hash"
CONDITION_TAINTS = "node.kubernetes.io/"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""Taints of node conditions under which daemon pods run on."""
RETRY_S_MIN, RETRY_S_MAX = 1.0, 900.0


def tolerations_of(pod: Obj) -> list[Obj]:
    """The tolerations of a daemon pod with this spec: its own, and those that all daemon pods have."""
    taints = [*TOLERATED, *([("network-unavailable", "NoSchedule")] if pod.get("hostNetwork") else [])]
    every = [{"key": f"{CONDITION_TAINTS}{name}", "operator": "Exists", "effect": effect} for name, effect in taints]
    own = pod.get("tolerations") or []
    return [*own, *(each for each in every if each not in own)]


def daemon_pod(ds: Obj, node: str, revision: str) -> Obj:
    """The pod of that DaemonSet for that node."""
    pod = pod_from_template(ds["spec"]["template"], ds, f"{ds['metadata']['name']}-")
    pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), HASH_LABEL: revision}
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    node_affinity = {**(affinity.get("nodeAffinity") or {}), REQUIRED: {"nodeSelectorTerms": [term]}}
    spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    spec["tolerations"] = tolerations_of(spec)
    return pod


def target_node(pod: Obj) -> str:
    """The node that a daemon pod was made for; "" for a pod that was adopted unbound."""
    spec = pod.get("spec") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or []:
        for each in term.get("matchFields") or []:
            if (each.get("key"), each.get("operator")) == ("metadata.name", "In") and each.get("values"):
                return str(each["values"][0])
    return str(spec.get("nodeName", ""))


def wants(ds: Obj, node: NodeInfo) -> tuple[bool, bool]:
    """Whether the DaemonSet has a pod on that node, and whether one that is there may stay."""
    spec = ds["spec"]["template"].get("spec") or {}
    if spec.get("nodeName") not in (None, "", node.name) or not matches_node_affinity(spec, node):
        return False, False
    tolerations = tolerations_of(spec)
    stays = all(tolerates(tolerations, taint) for taint in node.no_execute_taints)
    return untolerated_taint(tolerations, node) is None, stays


@dataclass
class Plan:
    """What to do next."""

    create: list[str] = field(default_factory=list)
    """Nodes that get a pod."""
    delete: list[PodInfo] = field(default_factory=list)
    failed: list[PodInfo] = field(default_factory=list)
    """Those of them that have failed."""
    retry_in_s: float | None = None
    """When to look at a failed pod again, which is not replaced yet."""


class Daemons:
    """A DaemonSet, its nodes, and its pods by node, at one moment."""

    def __init__(
        self, ds: Obj, revision: str, nodes: list[NodeInfo], pods: dict[str, list[PodInfo]], now: float
    ) -> None:
        self._ds = ds
        self._revision = revision
        self._now = now
        self._min_ready_s = int(ds["spec"].get("minReadySeconds") or 0)
        self._pods = {node: sorted(found, key=lambda pod: (pod.created, pod.key)) for node, found in pods.items()}
        self._wants = {node.name: wants(ds, node) for node in nodes}
        self._desired = sum(run for run, _ in self._wants.values())
        update = ds["spec"].get("updateStrategy") or {}
        rolling = update.get("rollingUpdate") or {}
        self._rolls = update.get("type", "RollingUpdate") == "RollingUpdate"
        self._surge = int_or_percent(rolling.get("maxSurge", 0), self._desired, up=True)
        self._unavailable = int_or_percent(rolling.get("maxUnavailable", 1), self._desired, up=True)

    def _available(self, pod: PodInfo) -> bool:
        return pod.available(self._min_ready_s, self._now)

    def _is_new(self, pod: PodInfo) -> bool:
        return (pod.labels or {}).get(HASH_LABEL) == self._revision

    def placement(self, failures: dict[str, int]) -> Plan:
        """Create missing pods, and delete those that have ended, are too many, or on the wrong nodes. `failures`: how
        many pods have failed in a row, by node."""
        plan = Plan()
        for node, (run, stay) in self._wants.items():
            pods = self._pods.get(node, [])
            if run and not pods:
                plan.create.append(node)
            elif not stay:
                plan.delete += [pod for pod in pods if not pod.deleting]
            else:
                self._keep_one(plan, [pod for pod in pods if not pod.deleting], failures.get(node, 0))
        for node in self._pods.keys() - self._wants.keys():
            plan.delete += [pod for pod in self._pods[node] if not pod.deleting]
        return plan

    def _keep_one(self, plan: Plan, pods: list[PodInfo], failures: int) -> None:
        for pod in (each for each in pods if each.ended):
            wait_s = max(pod.finished, pod.created) + min(RETRY_S_MIN * 2**failures, RETRY_S_MAX) - self._now
            if pod.phase == "Failed" and wait_s > 0:
                plan.retry_in_s = min(wait_s, plan.retry_in_s or wait_s)
                continue
            plan.delete.append(pod)
            plan.failed += [pod] if pod.phase == "Failed" else []
        running = [pod for pod in pods if not pod.ended]
        if self._rolls and self._surge:  # an old pod stays beside the new one until that is available
            old, new = ([pod for pod in running if self._is_new(pod) is is_new] for is_new in (False, True))
            plan.delete += [*old[1:], *new[1:]]
            if new and self._available(new[0]):
                plan.delete += old[:1]
        else:
            plan.delete += running[1:]

    def update(self) -> Plan:
        """Replace pods of an older template, as many at once as the strategy allows."""
        plan = Plan()
        if not self._rolls:
            return plan
        urgent, candidates, busy = list[PodInfo](), list[PodInfo](), 0
        for node, (run, _) in self._wants.items():
            if not run:
                continue
            pods = [pod for pod in self._pods.get(node, []) if not pod.deleting]
            old, new = ([pod for pod in pods if self._is_new(pod) is is_new] for is_new in (False, True))
            if old and not new:
                (candidates if self._available(old[0]) else urgent).append(old[0])
                busy += not self._surge and not self._available(old[0])
            elif not (new and self._available(new[0])):
                busy += bool(new) or not self._surge
        limit = self._surge or self._unavailable
        chosen = urgent + candidates[: max(0, limit - busy)]
        if self._surge:
            plan.create = [pod.node for pod in chosen if pod.node]
        else:
            plan.delete = chosen
        return plan

    def status(self) -> Obj:
        """The counts of the status; those that Go omits are left out while they are zero."""
        counts = dict.fromkeys(("current", "misscheduled", "ready", "updated", "available"), 0)
        for node, (run, _) in self._wants.items():
            pods = self._pods.get(node, [])
            if not pods:
                continue
            counts["current" if run else "misscheduled"] += 1
            if run:
                oldest = pods[0]
                counts["ready"] += oldest.ready
                counts["available"] += self._available(oldest)
                counts["updated"] += self._is_new(oldest)
        optional = {
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": self._desired - counts["available"],
        }
        return {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "desiredNumberScheduled": self._desired,
            "numberReady": counts["ready"],
            "observedGeneration": self._ds["metadata"].get("generation", 0),
        } | {name: count for name, count in optional.items() if count}
