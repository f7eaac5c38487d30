"""Hard rules in a pod's spec about its node, which MatrixResource's placement cannot follow.

MatrixResource may give a gang any node, at first and when it replaces a lost one. So a rule is accepted only if it
holds on every node: a selector that all nodes match, or anti-affinity per node for a pod that takes a whole one. Any
other rule is refused by the name of its field. Preferences are accepted and not followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcontainer.kubeapi.controllers.runtime.node_fit import matches_node_affinity
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import required_terms, spread_constraints

HOSTNAME = "kubernetes.io/hostname"
INSTEAD = (
    "leave it out, or ask for a domain with the annotation "
    "kueue.x-k8s.io/podset-required-topology: cloudmatrix.io/cabinet (or cloudmatrix.io/supernode)"
)


def selects_nodes(pod: dict[str, Any]) -> bool:
    """Whether the pod restricts its nodes by label, so that the nodes have to be known to judge it."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return bool(pod["spec"].get("nodeSelector") or affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))


def validate_rules(pods: Iterable[dict[str, Any]], nodes: list[NodeInfo], whole_nodes: bool) -> None:
    """Raise InvalidField for the first rule that might not hold. `whole_nodes`: each pod has a node to itself."""
    for pod in pods:
        name, spec = pod["metadata"]["name"], pod["spec"]
        if spec.get("nodeName"):
            continue
        if selects_nodes(pod):
            admitted = sum(matches_node_affinity(spec, node) for node in nodes)
            if admitted < len(nodes):
                field = "spec.nodeSelector" if spec.get("nodeSelector") else "spec.affinity.nodeAffinity"
                raise InvalidField(
                    f"pod {name}: {field} admits {admitted} of {len(nodes)} nodes, but matrix-scheduler may place it "
                    f"on any: {INSTEAD}"
                )
        kinds = {"podAffinity": required_terms(spec, "podAffinity")}
        kinds["podAntiAffinity"] = [
            term
            for term in required_terms(spec, "podAntiAffinity")
            if not (whole_nodes and term.get("topologyKey") == HOSTNAME)
        ]
        for kind, terms in kinds.items():
            if terms:
                raise InvalidField(
                    f"pod {name}: spec.affinity.{kind} with topologyKey {terms[0].get('topologyKey')} is required, and "
                    f"matrix-scheduler does not follow it: {INSTEAD}"
                )
        if constraints := spread_constraints(spec):
            raise InvalidField(
                f"pod {name}: spec.topologySpreadConstraints with topologyKey {constraints[0].get('topologyKey')} says "
                f"DoNotSchedule, and matrix-scheduler does not follow it: {INSTEAD}"
            )
