"""Gangs and their placement constraints, read from the annotations and labels that existing schedulers use.

| system | read from | meaning here |
| --- | --- | --- |
| Volcano | annotation `scheduling.k8s.io/group-name` | the gang's name |
| coscheduling | label `scheduling.x-k8s.io/pod-group` | the gang's name |
| Kueue | label `kueue.x-k8s.io/pod-group-name`, annotation `kueue.x-k8s.io/pod-group-total-count` | name and size |
| Kueue | annotations `kueue.x-k8s.io/podset-required-topology` and `-preferred-` with a node label | the domain |
| MindCluster | label `huawei.com/schedule_minAvailable` | the gang's size |
| MindCluster | annotation `sp-block`, in dies (16 per node) | block size; must divide the gang |
| MindCluster | annotation `reserve-nodes` | spare nodes reserved for the gang to replace a lost one |
| Volcano, coscheduling | PodGroup: `minMember`, `networkTopology` | size and domain (`pod_groups.py`) |
| Kubernetes | `spec.priority` (from a PriorityClass), `spec.preemptionPolicy` | which allocations it may preempt |

Gangs are placed all or nothing. A pod takes at most a node's NPUs (8, or as many as the machine's nodes have); pods of
a gang that request fewer share nodes, as many per node as divide the gang evenly. MindCluster pods may count a whole
node in dies (two per NPU). A pod with scheduling gates does not count yet. A gang is placed within one supernode, as a
tier-1 HyperNode of CCE requires; with `sp-block` it may span several, with each block within one.
Sources: Volcano and Kueue API documentation; Ascend/mind-cluster scheduling documentation (commit 22bb3d98).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NPUS_PER_NODE, NodeName
from matrixcommon.model.resource_key import key_of
from matrixcontainer.kubeapi.meta.quantities import InvalidQuantity, amount, parse_int
from matrixcontainer.operator.workload import NPU_RESOURCE
from matrixcontainer.scheduler.pod_groups import PodGroup, group_named
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.requested_capacity import Block, PlacementPolicy

SCHEDULER_NAME = "matrix-scheduler"
DIES_PER_NPU = 2
SPARES_MAX = 48

CABINET_KEYS = ("cloudmatrix.io/cabinet", "topology.kubernetes.io/zone")
SUPERNODE_KEYS = ("cloudmatrix.io/supernode", "volcano.sh/hypernode")


@dataclass
class Gang:
    """Pods to be placed together. No pod is placed before there are `size` of them. `node_npus` is the number of NPUs
    per node."""

    namespace: str
    name: str
    pods: list[dict[str, Any]] = field(default_factory=list)
    size: int = 1
    group: PodGroup = field(default_factory=PodGroup)
    node_npus: int = NPUS_PER_NODE

    @property
    def allocation(self) -> str:
        """Key of the gang's allocation, derived from its name so that reserving is idempotent."""
        digest = hashlib.sha256(f"{self.namespace}/{self.name}".encode()).hexdigest()[:8]
        return key_of(self.namespace, f"pods-{self.name[:44].strip('-.').replace('.', '-')}-{digest}")

    def active_pods(self) -> list[dict[str, Any]]:
        """Pods that are placed or still to be placed, in rank order."""
        active = [pod for pod in self.pods if not finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        return sorted((pod for pod in active if not pod["spec"].get("schedulingGates")), key=_rank)

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the gang's PodGroup and of its first pod, which takes precedence."""
        return {**self.group.annotations, **(self.pods[0]["metadata"].get("annotations") or {})}

    @property
    def spares(self) -> int:
        """Number of spare nodes to reserve."""
        text = self.annotations.get("reserve-nodes", "0")
        return max(0, min(parse_int(text), SPARES_MAX))

    def placement(self) -> PlacementPolicy:
        """Placement policy of the gang. Raises InvalidField for an unknown topology key."""
        policy, block = self._topology_placement(), self.annotations.get("sp-block")
        if block is None:
            return policy or PlacementPolicy()
        blocks = [Block(nodes=int(block) // (DIES_PER_NPU * self.npus_per_pod * self.pods_per_node), level="supernode")]
        return (policy or PlacementPolicy(level="supernode")).model_copy(update={"blocks": blocks})

    def _topology_placement(self) -> PlacementPolicy | None:
        """Placement policy for the requested topology domain, if any."""
        annotations = self.annotations
        for strength, required in (("required", True), ("preferred", False)):
            key = annotations.get(f"kueue.x-k8s.io/podset-{strength}-topology")
            if key in CABINET_KEYS:
                return PlacementPolicy(policy="pack", level="cabinet", required=required)
            if key in SUPERNODE_KEYS:
                return PlacementPolicy(policy="pack", level="supernode", required=required)
            if key is not None:
                raise InvalidField(
                    f"unknown topology level {key!r}; use one of {', '.join(CABINET_KEYS + SUPERNODE_KEYS)}"
                )
        return self.group.placement

    @property
    def npus_per_pod(self) -> int:
        """NPUs per pod."""
        requested = max((npus_of(pod) for pod in self.active_pods()), default=self.node_npus)
        return min(requested, self.node_npus)

    @property
    def pods_per_node(self) -> int:
        """Pods per node: the most that fit and divide the gang evenly."""
        pods = len(self.active_pods())
        return max(count for count in range(1, self.node_npus // self.npus_per_pod + 1) if pods % count == 0)

    @property
    def priority(self) -> int:
        """The highest priority of its pods, as admission set it from their PriorityClass."""
        return max((int(pod["spec"].get("priority") or 0) for pod in self.active_pods()), default=0)

    @property
    def preemption(self) -> Literal["Never", "LowerPriority"]:
        never = any(pod["spec"].get("preemptionPolicy") == "Never" for pod in self.active_pods())
        return "Never" if never else "LowerPriority"

    def request(self, allocation: AllocationView | None) -> AllocationRequest:
        """The allocation request for the gang. With an existing `allocation`, NPUs per node and placement stay as they
        are, and a shrinking gang gives up nodes without any of its pods first."""
        npus_per_pod = self.npus_per_pod
        npus_per_node = (
            (allocation.npus_per_node or self.node_npus)
            if allocation is not None
            else npus_per_pod * self.pods_per_node
        )
        members = -(-len(self.active_pods()) // max(1, int(npus_per_node // npus_per_pod)))
        idle: list[str] = []
        if allocation is not None:
            nodes = [member.node for member in allocation.members if member.role == "member"]
            in_use = {pod["spec"].get("nodeName") for pod in self.active_pods()}
            idle = [node for node in nodes if node not in in_use]
            members = max(members, len(nodes) - len(idle))
            idle = idle[len(idle) - max(0, len(nodes) - members) :]
        return AllocationRequest(
            project=self.namespace,
            nodes=members,
            npus_per_node=None if npus_per_node == self.node_npus else npus_per_node,
            spares=self.spares,
            placement=self.placement() if allocation is None else allocation.placement,
            priority=self.priority,
            preemption=self.preemption,
            exclude_nodes=[NodeName(node) for node in idle],
        )

    def validate(self) -> None:
        """Raise InvalidField if the gang can never be placed as requested."""
        for pod in self.active_pods():
            npus, name = npus_of(pod), pod["metadata"]["name"]
            if npus == DIES_PER_NPU * self.node_npus and _uses_mindcluster(pod, self.annotations):
                npus = self.node_npus
            if npus > self.node_npus:
                raise InvalidField(
                    f"pod {name} requests {npus} {NPU_RESOURCE}, but a node has {self.node_npus}: "
                    f"use a gang of pods that request up to {self.node_npus} each"
                )
            if npus < 1:
                raise InvalidField(f"pod {name} requests no {NPU_RESOURCE}; leave it to the default scheduler")
            if npus != self.npus_per_pod:
                raise InvalidField(
                    f"pod {name} requests {npus} {NPU_RESOURCE}, "
                    f"another pod of its gang {self.npus_per_pod}: all must be equal"
                )
        block = self.annotations.get("sp-block")
        if block is not None:
            dies, member = parse_int(block), DIES_PER_NPU * self.npus_per_pod * self.pods_per_node
            gang = DIES_PER_NPU * self.npus_per_pod * self.size
            if dies < member or dies % member or gang % dies:
                raise InvalidField(
                    f"sp-block {block!r} must be a multiple of {member} dies that divides the gang's {gang}"
                )


def group_into_gangs(
    pods: Iterable[dict[str, Any]],
    groups: Mapping[tuple[str, str], PodGroup] | None = None,
    node_npus: int = NPUS_PER_NODE,
) -> list[Gang]:
    """Group the pods of this scheduler into gangs; a pod without one is a gang of its own.

    `groups` are the existing PodGroups by namespace and name; `node_npus` is the number of NPUs per node.
    """
    gangs: dict[tuple[str, str], Gang] = {}
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        if pod["spec"].get("schedulerName") != SCHEDULER_NAME:
            continue
        metadata = pod["metadata"]
        name, size = _gang_name_and_size(pod)
        key = (metadata["namespace"], name)
        group = (groups or {}).get(key, PodGroup()) if group_named(pod) == name else PodGroup()
        gangs.setdefault(key, Gang(*key, group=group, node_npus=node_npus)).pods.append(pod)
        sizes[key] = max(sizes[key], size, group.min_member)
    for key, gang in gangs.items():
        gang.size = max(sizes[key], 1)
    return sorted(gangs.values(), key=lambda gang: (gang.namespace, gang.name))


def _gang_name_and_size(pod: dict[str, Any]) -> tuple[str, int]:
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    name = group_named(pod) or labels.get("kueue.x-k8s.io/pod-group-name") or pod["metadata"]["name"]
    size = (
        annotations.get("kueue.x-k8s.io/pod-group-total-count") or labels.get("huawei.com/schedule_minAvailable") or "1"
    )
    return name, max(1, parse_int(size, 1))


def npus_of(pod: dict[str, Any]) -> int:
    """NPUs that a pod's containers request in total. Raises InvalidField unless it is a whole number."""
    total = Fraction(0)
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        requested = (resources.get("requests") or {}).get(NPU_RESOURCE) or (resources.get("limits") or {}).get(
            NPU_RESOURCE
        )
        try:
            total += amount(requested or 0)
        except InvalidQuantity as error:
            raise InvalidField(f"{NPU_RESOURCE}: {str(requested)[:80]!r}: {error}") from error
    if total.denominator != 1:
        raise InvalidField(f"{NPU_RESOURCE}: {float(total)} is not a whole number")
    return int(total)


def _uses_mindcluster(pod: dict[str, Any], annotations: Mapping[str, str]) -> bool:
    """Whether the pod uses MindCluster's annotations or labels, so that a chip means one of an NPU's two dies."""
    labels = pod["metadata"].get("labels") or {}
    return "sp-block" in annotations or any(key.startswith("huawei.com/schedule_") for key in labels)


def finished(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _rank(pod: dict[str, Any]) -> tuple[int, str]:
    annotations = {**(pod["metadata"].get("labels") or {}), **(pod["metadata"].get("annotations") or {})}
    index = annotations.get("batch.kubernetes.io/job-completion-index", "")
    return (parse_int(index, 1 << 30), pod["metadata"]["name"])


def assign_pods(
    pods: list[dict[str, Any]], members: list[NodeName], ready: Collection[NodeName], pods_per_node: int = 1
) -> dict[str, NodeName]:
    """Map unbound pods to `members` (both in rank order), each of which takes `share` pods in total.

    A pod whose member is not ready waits for it, because ranks must not depend on which member is ready first.
    """
    assigned = Counter(pod["spec"].get("nodeName") for pod in pods)
    free = [node for node in members for _ in range(pods_per_node - assigned[node])]
    unbound = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
    return {name: node for name, node in zip(unbound, free, strict=False) if node in ready}
