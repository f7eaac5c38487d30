"""allocations."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import reference
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.fields import MEMBERS_MAX, NpuCount
from matrixresource.contract.nodes import InPlaceRepair, Power

REPLACEMENT_LABEL, RESERVATION_LABEL = "cloudmatrix.io/last-replacement", "cloudmatrix.io/reservation"
"""Labels that MatrixResource itself puts on allocations; a caller's own come and go with its requests."""
GROWN = "Grown"
"""The condition of an allocation that got members in place: how many of them were its spares, as of its generation."""
DEPLOYMENT_LABEL = "cloudmatrix.io/deployment"
"""The deployment of CloudMatrix-Infer that something is for, such as the memory that its caches lie in."""
CACHING_ON_LABEL = "cloudmatrix.io/caching-on"
"""The instance on whose nodes memory is held for caches: without it they have no use, whoever asked for them."""


def of_former(memory: AllocationView, created_at: str) -> bool:
    """Whether memory that caches have was asked for before the instance of the name it bears, or the allocation of its
    nodes, was created: it is that of a former one."""
    return memory.created_at < created_at


def system_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name in (REPLACEMENT_LABEL, RESERVATION_LABEL)}


class Block(ApiModel):
    """Members in each domain of `level` come in multiples of `nodes`, ranks in order inside them: a logical
    supernode."""

    nodes: int = Field(ge=1, le=MEMBERS_MAX, description="nodes of one block")
    level: Literal["cabinet", "supernode"] = Field("supernode", description="the domain whose edge cuts no block")


class PlacementPolicy(ApiModel):
    """How members may lie. `pack` takes as few domains of `level` as it can, `spread` as many.

    `required` makes it a condition: packed into one domain, or spread evenly over all of them, with at most
    `maxPerDomain` members in one where that is given. Members stay inside one supernode, where UB ends, unless the
    level is `supernode` and the policy leaves it open: preferred packing, or spreading.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"policy": "spread", "level": "cabinet"},)

    policy: Literal["pack", "spread"] = Field("pack", description="into as few domains as possible, or over as many")
    level: Literal["node", "cabinet", "supernode"] = Field("cabinet", description="the domain that is meant")
    required: bool = Field(False, description="refuse rather than compromise")
    max_per_domain: int | None = Field(None, ge=1, le=MEMBERS_MAX, description="for spread: members in one domain")
    blocks: list[Block] = Field(
        default_factory=empty_list,
        max_length=2,
        description="nested block sizes, such as 2 in a cabinet and 8 in a supernode",
    )

    @model_validator(mode="after")
    def _sensible(self) -> PlacementPolicy:
        if self.max_per_domain is not None and self.policy != "spread":
            raise ValueError("maxPerDomain goes with policy spread")
        levels = [block.level for block in self.blocks]
        if len(set(levels)) != len(levels):
            raise ValueError("blocks: one size for each level")
        return self


class Affinity(ApiModel):
    """Toward other allocations: only in domains that all of them use, or in none that any of them uses."""

    allocations: list[str] = Field(min_length=1, max_length=64)
    level: Literal["node", "cabinet", "supernode"] = Field("cabinet", description="the domain that is shared or not")
    required: bool = Field(True, description="refuse rather than compromise")

    REFERENCES: ClassVar = ("allocations",)

    def shown_to(self, project: str) -> Affinity:
        """With names in place of the project's own keys."""
        return self.model_copy(update={"allocations": [reference(key, project) for key in self.allocations]})


class AllocationRequest(ApiModel):
    """What one owner wants to hold, all of it or nothing.

    Either `nodes` (with `npusPerNode` of each, all eight unless reported) or `npus` (up to eight lie on one node, 0.5
    is a die; more are given as equal parts of nodes, whole ones where it comes out even), or neither and `cpus` or
    `memoryGib` alone, which are pooled from any nodes whoever holds the NPUs there. `memoryGibByNode` is memory of
    nodes that are named, and of no others. Pools have no members to spread: what can be required of where they lie is
    one cabinet or one supernode.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"nodes": 3, "spares": 1, "placement": {"policy": "pack", "level": "cabinet"}},
    )

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict)
    nodes: Annotated[int | None, Field(ge=1, le=MEMBERS_MAX)] = None
    npus: Annotated[float | None, Field(ge=0.5, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    npus_per_node: Annotated[float | None, Field(ge=0.5, le=8, multiple_of=0.5)] = None
    cpus: Annotated[int, Field(ge=0, le=MEMBERS_MAX * 4)] = 0
    memory_gib: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    memory_gib_by_node: dict[NodeName, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(
        default_factory=empty_dict,
        max_length=MEMBERS_MAX,
        description="GiB of each of these nodes, whoever holds the NPUs there; `memoryGib` is their sum",
    )
    spares: Annotated[int, Field(ge=0, le=48)] = 0
    placement: PlacementPolicy = PlacementPolicy()
    affinity: Affinity | None = None
    anti_affinity: Affinity | None = None
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = 0
    preemption: Literal["Never", "LowerPriority"] = Field("Never", description="whether it may put others out")
    lease_s: Annotated[float | None, Field(gt=0, le=1e9, description="released after this long unless renewed")] = None
    reservation: str | None = Field(None, max_length=127, description="take it from this reservation")
    topology_version: str = Field("", max_length=200, description="refused when the topology is another by now")
    exclude_nodes: list[NodeName] = Field(default_factory=empty_list, max_length=1024)

    REFERENCES: ClassVar = ("affinity", "anti_affinity", "reservation")

    def spec_dict(self) -> dict[str, Any]:
        """The spec without what is no part of it: labels, what was to be avoided then, the version it was made on."""
        return self.model_copy(update={"labels": {}, "exclude_nodes": [], "topology_version": ""}).wire()

    def as_asked(self, project: str) -> dict[str, Any]:
        """The spec as a member of that project would ask for it again: what is not by default, by its own names."""
        affinities = {"affinity": self.affinity, "anti_affinity": self.anti_affinity}
        shown: dict[str, Any] = {name: each.shown_to(project) for name, each in affinities.items() if each is not None}
        if self.reservation is not None:
            shown["reservation"] = reference(self.reservation, project)
        own = {"project", "labels", "exclude_nodes", "topology_version"}
        return self.model_copy(update=shown).model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=own)

    @model_validator(mode="after")
    def _named_memory(self) -> AllocationRequest:
        by_node = self.memory_gib_by_node
        if not by_node:
            return self
        for given, field in ((self.nodes, "nodes"), (self.npus, "npus"), (self.cpus, "cpus")):
            if given:
                raise ValueError(f"memoryGibByNode goes alone; give {field} in an allocation of its own")
        if self.placement.required or self.affinity is not None or self.anti_affinity is not None:
            raise ValueError("memoryGibByNode names its nodes: no placement, affinity or antiAffinity goes with it")
        if self.preemption != "Never" or self.reservation is not None:
            raise ValueError("memoryGibByNode preempts nobody and is taken from no reservation")
        if self.memory_gib not in (0, total := sum(by_node.values())):
            raise ValueError(f"memoryGib is the sum of memoryGibByNode, {total}, or left out")
        self.memory_gib = total
        return self

    @model_validator(mode="after")
    def _one_size(self) -> AllocationRequest:
        if self.nodes is not None and self.npus is not None:
            raise ValueError("give either nodes or npus")
        if self.nodes is None and self.npus is None:
            if not self.cpus and not self.memory_gib:
                raise ValueError("give nodes or npus, or cpus or memoryGib alone")
            if self.npus_per_node is not None or self.spares:
                raise ValueError("npusPerNode and spares go with nodes or npus")
        return self


class QuotaRequest(ApiModel):
    """How much a project may hold at once; what is not given has no limit. Spares count, eight NPUs each."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"npus": 80},)

    npus: Annotated[float | None, Field(ge=0, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    cpus: Annotated[int | None, Field(ge=0, le=1 << 40)] = None
    memory_gib: Annotated[int | None, Field(ge=0, le=1 << 40)] = None


class QuotaView(ResourceView):
    """A project's limits and what it holds."""

    npus: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    used_npus: NpuCount = 0
    used_cpus: float = 0
    used_memory_gib: float = 0


class RenewRequest(ApiModel):
    """How long the lease holds from now on."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"leaseS": 7200},)

    lease_s: float = Field(gt=0, le=1e9)


class BindingRequest(ApiModel):
    """How the nodes of an allocation are to stand: deployed and on, or switched off and kept."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"power": "On"},)

    power: Power = Field("On", description="Off: the nodes are stopped and switched off; what is on their disks stays")


class ReplaceRequest(ApiModel):
    """Which member to replace, and why (kept in the member's history)."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "reason": "its fan is loud"},)

    node: NodeName
    reason: str = Field("Requested", max_length=200)


class RepairRequest(ApiModel):
    """Which member to repair where it stands, and how."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "task": "restart"},)

    node: NodeName
    task: InPlaceRepair = Field(description="what its agent is to do: restart its processes, reset its NPUs, or reboot")


class MemberView(ApiModel):
    """One node of an allocation, or its part of one. `state` is the node's; `ready` says its agent has reported what is
    requested of it.

    A successor is deployed beside the member whose rank it will take over, while an allocation moves. `dies` are those
    of a part of a node (NPU k has dies 2k and 2k+1, or die k where it is one), `pool` members give sockets and memory
    only.
    """

    node: str = Field(description="the node")
    cabinet: str = Field(description="where it stands")
    role: Literal["member", "spare", "successor", "pool"] = Field(description="what it is there for")
    rank: int | None = Field(None, description="its place in the order of the members")
    state: str = Field(description="the node's state")
    agent: str = Field(description="whether its agent is heard: Connected, Stale or Lost")
    health: str = Field(description="of its hardware: Healthy, SubHealthy, Unhealthy or Unknown")
    fault: str = Field("", description="part, code and level of what makes the node unhealthy")
    level: str | None = Field(None, description="the worst level of those faults")
    ready: bool = Field(description="whether its agent has reported what is requested of it")
    stage: str | None = Field(None, description="at which stage of its work the node's agent is, or which one failed")
    message: str | None = Field(None, description="what is said of that stage, or why the node is kept out")
    failed_at: str | None = Field(
        None, description="of one that is lost or unhealthy: when it failed, that is when its agent was heard last or "
        "when the fault was first reported"
    )  # fmt: skip
    detected_at: str | None = Field(None, description="when it was declared lost, or when the fault was first reported")
    npus: NpuCount | None = Field(None, description="NPUs of its part of the node, where it has not all of it")
    dies: list[int] | None = Field(None, description="dies of that part, by number within the node")
    cpus: int | None = Field(None, description="CPU sockets of that part")
    memory_gib: int | None = Field(None, description="memory of that part")

    @property
    def gone(self) -> bool:
        """Whether the allocation has lost it: its agent is not heard any more, or the node is kept out."""
        return self.agent == "Lost" or self.state in ("Quarantined", "Retired")


class AllocationView(ResourceView):
    """What one owner holds. `nodes` counts members, `npus` the NPUs they hold; `request` is what was asked for, and can
    be asked for again."""

    nodes: int
    npus: NpuCount
    npus_per_node: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    spares: int
    placement: PlacementPolicy
    affinity: Affinity | None = None
    anti_affinity: Affinity | None = None
    priority: int = 0
    preemption: str = "Never"
    expires_at: str | None = None
    topology_version: str
    bound: bool
    power: Power = "On"
    members: list[MemberView] = Field(default_factory=empty_list)
    preempts: list[str] = Field(default_factory=empty_list)
    request: dict[str, Any] = Field(default_factory=empty_dict, description="the spec as it was granted last")

    @property
    def growth(self) -> str:
        """Of the members that its last change added, how many were spares; empty where it added none."""
        found = (each for each in self.conditions if each.type == GROWN and each.observed_generation == self.generation)
        return next((each.message for each in found), "")
