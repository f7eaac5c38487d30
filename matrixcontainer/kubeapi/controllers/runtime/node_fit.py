"""Filtering and choice of nodes for a pod: the default scheduler's basic rules.

Filters: readiness and schedulability, node selector, required node affinity, taints, and all requested resources
(extended ones too) against allocatable minus requested; a resource that the node leaves to another scheduler is never
given out here. Rules relative to other pods are in `inter_pod_rules`. Of the nodes that pass, the one with the fewest
pods is chosen, ties by name. Not supported: volumes, preferences and preemption.
"""

from collections.abc import Callable, Sequence
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


def matches_node_affinity(spec: Obj, node: NodeInfo) -> bool:
    """Whether a pod's node selector and required node affinity admit the node."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return (spec.get("nodeSelector") or {}).items() <= node.labels.items() and (
        not affinity or any(matches_term(term, node) for term in affinity.get("nodeSelectorTerms") or [])
    )


def untolerated_taint(tolerations: list[Obj], node: NodeInfo) -> Obj | None:
    """The first taint that keeps a pod with these tolerations from being placed on the node."""
    repelling = (taint for taint in node.taints if taint.get("effect") in ("NoSchedule", "NoExecute"))
    return next((taint for taint in repelling if not tolerates(tolerations, taint)), None)


def filter_reason(pod: Obj, requests: dict[str, int], node: NodeInfo, requested: dict[str, int]) -> str:
    """Why the pod does not fit this node, worded as by the scheduler; "" if it fits."""
    spec = pod["spec"]
    if not node.ready or node.deleting:
        return "node(s) were not ready"
    if node.unschedulable and not tolerates(
        spec.get("tolerations") or [], {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    if not matches_node_affinity(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if taint := untolerated_taint(spec.get("tolerations") or [], node):
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if requested.get("pods", 0) + 1000 > node.allocatable.get("pods", 110_000):
        return "Too many pods"
    for name, amount in requests.items():
        if amount > 0 and (scheduler := node.managed_resources.get(name)):
            return f"node(s) had {name} allocated by another scheduler: set spec.schedulerName to {scheduler}"
        if amount > 0 and requested.get(name, 0) + amount > node.allocatable.get(name, 0):
            return f"Insufficient {name}"
    return ""


def select_node(
    pod: Obj,
    requests: dict[str, int],
    nodes: list[NodeInfo],
    requested_by_node: dict[str, dict[str, int]],
    filters: Sequence[Callable[[NodeInfo], str]] = (),
) -> tuple[str, str]:
    """(node, ""), or ("", message) if no node fits. Further `filters` say why a node is out, or ""."""
    reasons: dict[str, int] = {}
    feasible = []
    for node in nodes:
        reason = filter_reason(pod, requests, node, requested_by_node.get(node.name, {}))
        reason = reason or next((found for each in filters if (found := each(node))), "")
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
