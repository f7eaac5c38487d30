"""Filtering and choice of nodes for a pod: the default scheduler's basic rules.

Filters: readiness and schedulability, node selector, required node affinity, taints, and all requested resources
(extended ones too) against allocatable minus requested. Of the nodes that pass, the one with the fewest pods is chosen,
ties by name. Not supported: pod affinity and anti-affinity, topology spread, volumes, host ports, preferences and
preemption.
"""

from typing import Any

from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.meta.selectors import requirement_from_term

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


def matches_term(term: Obj, node: NodeInfo) -> bool:
    """Whether all expressions of a nodeSelectorTerm match; an empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    requirements = [(e, node.labels) for e in expressions] + [(e, {"metadata.name": node.name}) for e in fields]
    return all(requirement_from_term(expression).matches(labels) for expression, labels in requirements)


def filter_reason(pod: Obj, requests: dict[str, int], node: NodeInfo, requested: dict[str, int]) -> str:
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
        affinity and not any(matches_term(term, node) for term in affinity.get("nodeSelectorTerms") or [])
    ):
        return "node(s) didn't match Pod's node affinity/selector"
    for taint in node.taints:
        repels = taint.get("effect") in ("NoSchedule", "NoExecute")
        if repels and not tolerates(spec.get("tolerations") or [], taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if requested.get("pods", 0) + 1000 > node.allocatable.get("pods", 110_000):
        return "Too many pods"
    for name, amount in requests.items():
        if amount > 0 and requested.get(name, 0) + amount > node.allocatable.get(name, 0):
            return f"Insufficient {name}"
    return ""


def select_node(
    pod: Obj, requests: dict[str, int], nodes: list[NodeInfo], requested_by_node: dict[str, dict[str, int]]
) -> tuple[str, str]:
    """(node, ""), or ("", message) if no node fits."""
    reasons: dict[str, int] = {}
    feasible = []
    for node in nodes:
        reason = filter_reason(pod, requests, node, requested_by_node.get(node.name, {}))
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            feasible.append(node.name)
    if feasible:
        return min(feasible, key=lambda name: (requested_by_node.get(name, {}).get("pods", 0), name)), ""
    if not nodes:
        return "", "no nodes available to schedule pods"
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return "", f"0/{len(nodes)} nodes are available: {summary}."
