"""Pods that belong together, and how they may lie: read off the pods in the vocabularies people already use.

| whose | what is read | means here |
| --- | --- | --- |
| Volcano | annotation `scheduling.k8s.io/group-name` | the gang's name |
| coscheduling | label `scheduling.x-k8s.io/pod-group` | the gang's name |
| Kueue | label `kueue.x-k8s.io/pod-group-name`, annotation `kueue.x-k8s.io/pod-group-total-count` | name and size |
| Kueue | annotations `kueue.x-k8s.io/podset-required-topology` and `-preferred-` with a node label | the domain |
| MindCluster | label `huawei.com/schedule_minAvailable` | the gang's size |
| MindCluster | annotation `sp-block`, in dies (16 a node) | a block: must divide the gang |
| MindCluster | annotation `reserve-nodes` | nodes reserved beside the gang to step in for a lost one |
| Volcano, coscheduling | PodGroup: `minMember`, `networkTopology` | size and domain (`pod_groups.py`) |
| Kubernetes | `spec.priority` (of a PriorityClass), `spec.preemptionPolicy` | whom it may preempt |

A gang is placed whole: all its pods or none. A pod takes up to a node's worth of NPUs (8, or what the machine's nodes
have); pods of a gang that ask for fewer share nodes as far as they fill them evenly. Who speaks MindCluster may count
a whole node in dies (two an NPU). A pod with scheduling gates is not there yet. Everything a gang gets lies in one
supernode, which is what a tier-1 HyperNode of CCE asks for; a gang with a `sp-block` may take several, each block
whole in one.
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
from matrixcontainer.kubeapi.meta.quantities import NoQuantity, amount, whole_number
from matrixcontainer.operator.workload import NPU_RESOURCE
from matrixcontainer.scheduler.pod_groups import PodGroup, group_named
from matrixresource.contract.allocations import AllocationRequest, AllocationView, Block, PlacementPolicy

SCHEDULER_NAME = "matrix-scheduler"
DIES_PER_NPU = 2
SPARES_MAX = 48

CABINET_KEYS = ("cloudmatrix.io/cabinet", "topology.kubernetes.io/zone")
SUPERNODE_KEYS = ("cloudmatrix.io/supernode", "volcano.sh/hypernode")


@dataclass
class Gang:
    """Pods to be placed together. `size` is how many there must be before any is placed; a node of the machine has
    `node_npus`."""

    namespace: str
    name: str
    pods: list[dict[str, Any]] = field(default_factory=list)
    size: int = 1
    group: PodGroup = field(default_factory=PodGroup)
    node_npus: int = NPUS_PER_NODE

    @property
    def allocation(self) -> str:
        """Derived from the gang, so that asking twice finds the first."""
        digest = hashlib.sha256(f"{self.namespace}/{self.name}".encode()).hexdigest()[:8]
        return key_of(self.namespace, f"pods-{self.name[:44].strip('-.').replace('.', '-')}-{digest}")

    def alive(self) -> list[dict[str, Any]]:
        """Pods that need a place or have one, in rank order."""
        living = [pod for pod in self.pods if not finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        return sorted((pod for pod in living if not pod["spec"].get("schedulingGates")), key=_rank)

    @property
    def notes(self) -> dict[str, str]:
        """What is declared of the gang, by its PodGroup and, before that, by its first pod."""
        return {**self.group.annotations, **(self.pods[0]["metadata"].get("annotations") or {})}

    @property
    def spares(self) -> int:
        """Nodes to hold ready beside it."""
        text = self.notes.get("reserve-nodes", "0")
        return max(0, min(whole_number(text), SPARES_MAX))

    def placement(self) -> PlacementPolicy:
        """How the gang may lie. Raises InvalidField for a key that is no domain here."""
        chosen, block = self._domain(), self.notes.get("sp-block")
        if block is None:
            return chosen or PlacementPolicy()
        blocks = [Block(nodes=int(block) // (DIES_PER_NPU * self.each * self.share), level="supernode")]
        return (chosen or PlacementPolicy(level="supernode")).model_copy(update={"blocks": blocks})

    def _domain(self) -> PlacementPolicy | None:
        """The domain that is asked for, if one is."""
        annotations = self.notes
        for strength, required in (("required", True), ("preferred", False)):
            key = annotations.get(f"kueue.x-k8s.io/podset-{strength}-topology")
            if key in CABINET_KEYS:
                return PlacementPolicy(policy="pack", level="cabinet", required=required)
            if key in SUPERNODE_KEYS:
                return PlacementPolicy(policy="pack", level="supernode", required=required)
            if key is not None:
                raise InvalidField(
                    f"{key!r} is no topology level; use one of {', '.join(CABINET_KEYS + SUPERNODE_KEYS)}"
                )
        return self.group.placement

    @property
    def each(self) -> int:
        """NPUs of one pod."""
        asked = max((npus_of(pod) for pod in self.alive()), default=self.node_npus)
        return min(asked, self.node_npus)

    @property
    def share(self) -> int:
        """How many of its pods lie on one node: as many as go evenly."""
        pods = len(self.alive())
        return max(count for count in range(1, self.node_npus // self.each + 1) if pods % count == 0)

    @property
    def priority(self) -> int:
        """The highest of its pods', as their PriorityClass has written it into them."""
        return max((int(pod["spec"].get("priority") or 0) for pod in self.alive()), default=0)

    @property
    def preemption(self) -> Literal["Never", "LowerPriority"]:
        never = any(pod["spec"].get("preemptionPolicy") == "Never" for pod in self.alive())
        return "Never" if never else "LowerPriority"

    def request(self, allocation: AllocationView | None) -> AllocationRequest:
        """What it needs; of one that holds something already the share of a node and the placement stay, and where it
        shrinks, nodes go on which none of its pods is."""
        each = self.each
        per = (allocation.npus_per_node or self.node_npus) if allocation is not None else each * self.share
        members = -(-len(self.alive()) // max(1, int(per // each)))
        idle: list[str] = []
        if allocation is not None:
            nodes = [member.node for member in allocation.members if member.role == "member"]
            in_use = {pod["spec"].get("nodeName") for pod in self.alive()}
            idle = [node for node in nodes if node not in in_use]
            members = max(members, len(nodes) - len(idle))
            idle = idle[len(idle) - max(0, len(nodes) - members) :]
        return AllocationRequest(
            project=self.namespace,
            nodes=members,
            npus_per_node=None if per == self.node_npus else per,
            spares=self.spares,
            placement=self.placement() if allocation is None else allocation.placement,
            priority=self.priority,
            preemption=self.preemption,
            exclude_nodes=[NodeName(node) for node in idle],
        )

    def check(self) -> None:
        """Raises what cannot be placed as it is asked for."""
        for pod in self.alive():
            npus, name = npus_of(pod), pod["metadata"]["name"]
            if npus == DIES_PER_NPU * self.node_npus and _speaks_mindcluster(pod, self.notes):
                npus = self.node_npus
            if npus > self.node_npus:
                raise InvalidField(
                    f"pod {name} asks for {npus} {NPU_RESOURCE}; a node has {self.node_npus}: "
                    f"make it a gang of pods with {self.node_npus} each"
                )
            if npus < 1:
                raise InvalidField(f"pod {name} asks for 0 {NPU_RESOURCE}; leave it to the default scheduler")
            if npus != self.each:
                raise InvalidField(f"pod {name} asks for {npus} {NPU_RESOURCE}, another of its gang for {self.each}")
        block = self.notes.get("sp-block")
        if block is not None:
            dies, member = whole_number(block), DIES_PER_NPU * self.each * self.share
            gang = DIES_PER_NPU * self.each * self.size
            if dies < member or dies % member or gang % dies:
                raise InvalidField(
                    f"sp-block {block!r} must be a multiple of {member} dies that divides the gang's {gang}"
                )


def gangs_of(
    pods: Iterable[dict[str, Any]],
    groups: Mapping[tuple[str, str], PodGroup] | None = None,
    node_npus: int = NPUS_PER_NODE,
) -> list[Gang]:
    """The pods of our scheduler, gathered into gangs; a pod that names none is a gang of its own.

    `groups` are the PodGroups that there are, by namespace and name; `node_npus` is what a node of the machine has.
    """
    found: dict[tuple[str, str], Gang] = {}
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        if pod["spec"].get("schedulerName") != SCHEDULER_NAME:
            continue
        metadata = pod["metadata"]
        name, size = _named(pod)
        key = (metadata["namespace"], name)
        group = (groups or {}).get(key, PodGroup()) if group_named(pod) == name else PodGroup()
        found.setdefault(key, Gang(*key, group=group, node_npus=node_npus)).pods.append(pod)
        sizes[key] = max(sizes[key], size, group.least)
    for key, gang in found.items():
        gang.size = max(sizes[key], 1)
    return sorted(found.values(), key=lambda gang: (gang.namespace, gang.name))


def _named(pod: dict[str, Any]) -> tuple[str, int]:
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    name = group_named(pod) or labels.get("kueue.x-k8s.io/pod-group-name") or pod["metadata"]["name"]
    size = (
        annotations.get("kueue.x-k8s.io/pod-group-total-count") or labels.get("huawei.com/schedule_minAvailable") or "1"
    )
    return name, max(1, whole_number(size, 1))


def npus_of(pod: dict[str, Any]) -> int:
    """NPUs that a pod's containers ask for together. Raises InvalidField for what is no whole number of them."""
    total = Fraction(0)
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        wanted = (resources.get("requests") or {}).get(NPU_RESOURCE) or (resources.get("limits") or {}).get(
            NPU_RESOURCE
        )
        try:
            total += amount(wanted or 0)
        except NoQuantity as wrong:
            raise InvalidField(f"{NPU_RESOURCE}: {str(wanted)[:80]!r}: {wrong}") from wrong
    if total.denominator != 1:
        raise InvalidField(f"{NPU_RESOURCE}: {float(total)} is no whole number")
    return int(total)


def _speaks_mindcluster(pod: dict[str, Any], notes: Mapping[str, str]) -> bool:
    """Whether it bears the words of MindCluster, for which each of the two dies of an NPU is a chip."""
    labels = pod["metadata"].get("labels") or {}
    return "sp-block" in notes or any(key.startswith("huawei.com/schedule_") for key in labels)


def finished(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _rank(pod: dict[str, Any]) -> tuple[int, str]:
    annotations = {**(pod["metadata"].get("labels") or {}), **(pod["metadata"].get("annotations") or {})}
    index = annotations.get("batch.kubernetes.io/job-completion-index", "")
    return (whole_number(index, 1 << 30), pod["metadata"]["name"])


def bindings(
    pods: list[dict[str, Any]], members: list[NodeName], ready: Collection[NodeName], share: int = 1
) -> dict[str, NodeName]:
    """Which unbound pod goes to which of the members (in rank order), each of which takes `share` pods in all.

    A pod whose member is not ready waits for that one: which member is ready first says nothing about ranks.
    """
    there = Counter(pod["spec"].get("nodeName") for pod in pods)
    free = [node for node in members for _ in range(share - there[node])]
    waiting = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
    return {name: node for name, node in zip(waiting, free, strict=False) if node in ready}
