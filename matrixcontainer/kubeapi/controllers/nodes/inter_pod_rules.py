"""Hard rules about where a pod may be placed relative to other pods: required pod affinity and anti-affinity, its own
and that of running pods, topology spread with `DoNotSchedule`, and host ports.

Each rule is compiled once per pod to a filter, which says for a node why the pod may not go there, worded as by the
scheduler, or "". Preferred rules and `ScheduleAnyway` are not followed: they forbid nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.node_fit import matches_node_affinity, untolerated_taint
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import HostPort, PodIndex, PodInfo, required_terms, spread_constraints
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector

Obj = dict[str, Any]
Filter = Callable[[NodeInfo], str]
NamespaceLabels = Callable[[str], dict[str, str]]

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
HOST_PORTS = "node(s) didn't have free ports for the requested pod ports"
SPREAD = "node(s) didn't match pod topology spread constraints"


class InterPodRules:
    """The pods and nodes that rules are judged against."""

    def __init__(self, nodes: list[NodeInfo], pods: PodIndex, namespace_labels: NamespaceLabels) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._pods = pods
        self._namespace_labels = namespace_labels

    def filters(self, pod: Obj, info: PodInfo) -> list[Filter]:
        """The filters of a pending pod; none for a pod that no rule concerns."""
        spec = pod["spec"]
        filters: list[Filter] = [self._host_port_filter(info)] if info.host_ports else []
        spread = spread_constraints(spec)
        filters += [self._spread_filter(constraint, spread, spec, info) for constraint in spread]
        if affinity := required_terms(spec, "podAffinity"):
            filters.append(self._affinity_filter(affinity, info))
        filters += [
            self._excluding(self._domains_with([term], term["topologyKey"], info), term, ANTI_AFFINITY)
            for term in required_terms(spec, "podAntiAffinity")
        ]
        filters += self._filters_of_running_pods(info)
        return filters

    # ---- affinity and anti-affinity

    def _affinity_filter(self, terms: list[Obj], info: PodInfo) -> Filter:
        """For every term the node's domain needs a pod that matches all of them; where there is no such pod at all, the
        first pod of a group that matches its own terms may go anywhere."""
        domains = [self._domains_with(terms, term["topologyKey"], info) for term in terms]
        first = not any(domains) and all(self._matches(term, info, info) for term in terms)

        def reason(node: NodeInfo) -> str:
            for term, occupied in zip(terms, domains, strict=True):
                domain = node.labels.get(term["topologyKey"])
                if domain is None or (domain not in occupied and not first):
                    return AFFINITY
            return ""

        return reason

    def _filters_of_running_pods(self, info: PodInfo) -> Iterator[Filter]:
        """What the required anti-affinity of running pods forbids this one."""
        for other in self._pods.with_anti_affinity():
            node = self._nodes.get(other.node)
            for term in other.anti_affinity:
                domain = node.labels.get(term["topologyKey"]) if node is not None else None
                if domain is not None and self._matches(term, other, info):
                    yield self._excluding({domain}, term, EXISTING_ANTI_AFFINITY)

    @staticmethod
    def _excluding(domains: set[str], term: Obj, reason: str) -> Filter:
        return lambda node: reason if node.labels.get(term["topologyKey"]) in domains else ""

    def _domains_with(self, terms: list[Obj], key: str, info: PodInfo) -> set[str]:
        """The domains of that topology with a pod that matches all these terms."""
        return {
            domain
            for pod in self._pods.bound()
            if (domain := self._domain(pod, key)) is not None and all(self._matches(term, info, pod) for term in terms)
        }

    def _domain(self, pod: PodInfo, key: str) -> str | None:
        node = self._nodes.get(pod.node)
        return node.labels.get(key) if node is not None else None

    def _matches(self, term: Obj, owner: PodInfo, other: PodInfo) -> bool:
        """Whether a term of the pod `owner` selects `other`."""
        namespaces, selector = term.get("namespaces") or [], term.get("namespaceSelector")
        if not namespaces and selector is None:
            namespaces = [owner.key[0]]
        if other.key[0] not in namespaces and not matches_label_selector(
            selector, self._namespace_labels(other.key[0])
        ):
            return False
        return _selects(term, owner, other)

    # ---- topology spread

    def _spread_filter(self, constraint: Obj, constraints: list[Obj], spec: Obj, info: PodInfo) -> Filter:
        """The domain may then hold at most `maxSkew` matching pods more than the one with the fewest."""
        key, keys = constraint["topologyKey"], {each["topologyKey"] for each in constraints}
        counted = {
            node.name: node.labels[key]
            for node in self._nodes.values()
            if keys <= node.labels.keys() and _counts(constraint, spec, node)
        }
        counts = Counter(dict.fromkeys(counted.values(), 0))
        for other in self._pods.bound():
            if other.node in counted and other.key[0] == info.key[0] and not other.deleting:
                counts[counted[other.node]] += _selects(constraint, info, other)
        enough_domains = len(counts) >= (constraint.get("minDomains") or 1)
        fewest = min(counts.values(), default=0) if enough_domains else 0
        itself = _selects(constraint, info, info)

        def reason(node: NodeInfo) -> str:
            domain = node.labels.get(key)
            if domain is None:
                return f"{SPREAD} (missing required label)"
            return SPREAD if counts[domain] + itself - fewest > constraint["maxSkew"] else ""

        return reason

    # ---- host ports

    def _host_port_filter(self, info: PodInfo) -> Filter:
        def reason(node: NodeInfo) -> str:
            taken = (port for pod in self._pods.on_node(node.name) if not pod.ended for port in pod.host_ports)
            return HOST_PORTS if any(_collide(port, own) for port in taken for own in info.host_ports) else ""

        return reason


def _collide(one: HostPort, other: HostPort) -> bool:
    """Whether two host ports are the same on an address they share; an empty address stands for all."""
    return one[1:] == other[1:] and (one[0] == other[0] or "" in (one[0], other[0]))


def _counts(constraint: Obj, spec: Obj, node: NodeInfo) -> bool:
    """Whether a node's domain counts: the pod's node affinity and, where asked for, its tolerations admit the node."""
    if constraint.get("nodeAffinityPolicy") != "Ignore" and not matches_node_affinity(spec, node):
        return False
    tolerations = spec.get("tolerations") or []
    return constraint.get("nodeTaintsPolicy") != "Honor" or untolerated_taint(tolerations, node) is None


def _selects(rule: Obj, owner: PodInfo, other: PodInfo) -> bool:
    """Whether the rule's label selector, narrowed by the owner's own values of `matchLabelKeys`, selects `other`."""
    own, theirs = owner.labels or {}, other.labels or {}
    same = all(theirs.get(key) == own[key] for key in rule.get("matchLabelKeys") or [] if key in own)
    other_than = all(theirs.get(key) != own[key] for key in rule.get("mismatchLabelKeys") or [] if key in own)
    return same and other_than and matches_label_selector(rule.get("labelSelector"), theirs)
