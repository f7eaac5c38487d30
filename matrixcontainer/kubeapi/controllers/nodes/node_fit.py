"""Filtering and choice of nodes for a pod: the default scheduler's basic rules.

Filters: readiness and schedulability, node selector, required node affinity, taints, and all requested resources
(extended ones too) against allocatable minus requested. Of the nodes that pass, the one with the fewest pods is chosen,
ties by name. Not supported: pod affinity and anti-affinity, topology spread, volumes, host ports, preferences and
preemption.
"""

from typing import Any

from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts
from matrixcontainer.kubeapi.meta.selectors import requirement_of

Obj = dict[str, Any]


def tolerates(tolerations: list[Obj], taint: Obj) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
        if not key and operator == "Exists":
            return True
        if key == taint["key"] and (operator == "Exists" or toleration.get("value", "") == taint.get("value", "")):
            return True
    return False


def term_holds(term: Obj, node: NodeFacts) -> bool:
    """Whether all expressions of a nodeSelectorTerm match; an empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    found = [(e, node.labels) for e in expressions] + [(e, {"metadata.name": node.name}) for e in fields]
    return all(requirement_of(expression).holds(labels) for expression, labels in found)


def filter_reason(pod: Obj, asks: dict[str, int], node: NodeFacts, taken: dict[str, int]) -> str:
    """Why the pod does not fit this node, worded as by the scheduler; "" if it fits."""
    spec = pod["spec"]
    if not node.ready or node.deleting:
        return "node(s) were not ready"
    if node.unschedulable and not tolerates(
        spec.get("tolerations") or [], {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    selector = spec.get("nodeSelector") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not selector.items() <= node.labels.items() or (
        affinity and not any(term_holds(term, node) for term in affinity.get("nodeSelectorTerms") or [])
    ):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.taints:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not tolerates(spec.get("tolerations") or [], taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if taken.get("pods", 0) + 1000 > node.allocatable.get("pods", 110_000):
        return "Too many pods"
    for name, amount in asks.items():
        if amount > 0 and taken.get(name, 0) + amount > node.allocatable.get(name, 0):
            return f"Insufficient {name}"
    return ""


def choose_node(
    pod: Obj, asks: dict[str, int], nodes: list[NodeFacts], taken: dict[str, dict[str, int]]
) -> tuple[str, str]:
    """(node, ""), or ("", message) if no node fits."""
    reasons: dict[str, int] = {}
    fitting = []
    for node in nodes:
        why = filter_reason(pod, asks, node, taken.get(node.name, {}))
        if why:
            reasons[why] = reasons.get(why, 0) + 1
        else:
            fitting.append(node.name)
    if fitting:
        return min(fitting, key=lambda name: (taken.get(name, {}).get("pods", 0), name)), ""
    if not nodes:
        return "", "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{count} {why}" for why, count in reasons.items()))
    return "", f"0/{len(nodes)} nodes are available: {listed}."
