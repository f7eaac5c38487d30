"""Allocations and quotas: requests and views."""

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
"""Labels that MatrixResource itself sets on allocations; a request replaces all others."""
GROWN = "Grown"
"""The condition of an allocation that grew in place. Its message is how many of the new members had been spares, its
observedGeneration the growth it is about."""
DEPLOYMENT_LABEL = "cloudmatrix.io/deployment"
"""The deployment of CloudMatrix-Infer that an allocation serves, for example one of memory for its caches."""
CACHING_ON_LABEL = "cloudmatrix.io/caching-on"
"""The instance on whose nodes cache memory is allocated. Without that instance the memory is useless, whoever requested
it."""


def of_former(memory: AllocationView, created_at: str) -> bool:
    """Whether cache memory predates the instance it is labelled with, or the allocation of that instance's nodes, and
    so belongs to an earlier instance of the same name."""
    return memory.created_at < created_at


def system_labels(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name in (REPLACEMENT_LABEL, RESERVATION_LABEL)}


class Block(ApiModel):
    """Members come in multiples of `nodes` in each domain of `level`, with consecutive ranks inside a block: a logical
    supernode."""

    nodes: int = Field(ge=1, le=MEMBERS_MAX, description="nodes in one block")
    level: Literal["cabinet", "supernode"] = Field(
        "supernode", description="the kind of domain that a block must not straddle"
    )


class PlacementPolicy(ApiModel):
    """Where members may be placed. `pack` uses as few domains of `level` as possible, `spread` as many.

    `required` makes it a hard constraint: all members in one domain, or spread evenly over all of them, with at most
    `maxPerDomain` members in each where that is given. Members stay inside one supernode, where the UB plane ends,
    unless the level is `supernode` and the policy permits several: packing that is only preferred, or spreading.
    """

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"policy": "spread", "level": "cabinet"},)

    policy: Literal["pack", "spread"] = Field(
        "pack", description="pack into as few domains as possible, or spread over as many as possible"
    )
    level: Literal["node", "cabinet", "supernode"] = Field(
        "cabinet", description="the kind of domain to pack into or spread over"
    )
    required: bool = Field(False, description="refuse the request rather than relax this")
    max_per_domain: int | None = Field(
        None, ge=1, le=MEMBERS_MAX, description="with spread: the most members in one domain"
    )
    blocks: list[Block] = Field(
        default_factory=empty_list,
        max_length=2,
        description="nested block sizes, for example 2 per cabinet and 8 per supernode",
    )

    @model_validator(mode="after")
    def _sensible(self) -> PlacementPolicy:
        if self.max_per_domain is not None and self.policy != "spread":
            raise ValueError("maxPerDomain is only valid with policy spread")
        levels = [block.level for block in self.blocks]
        if len(set(levels)) != len(levels):
            raise ValueError("blocks: give at most one size per level")
        return self


class Affinity(ApiModel):
    """Relation to other allocations: use only domains that all of them use (affinity), or none that any of them uses
    (anti-affinity)."""

    allocations: list[str] = Field(min_length=1, max_length=64)
    level: Literal["node", "cabinet", "supernode"] = Field(
        "cabinet", description="the kind of domain to share or to avoid"
    )
    required: bool = Field(True, description="refuse the request rather than relax this")

    REFERENCES: ClassVar = ("allocations",)

    def shown_to(self, project: str) -> Affinity:
        """A copy with plain names in place of the keys of this project's own allocations."""
        return self.model_copy(update={"allocations": [reference(key, project) for key in self.allocations]})


class AllocationRequest(ApiModel):
    """What an allocation is to hold, granted in full or not at all.

    Give `nodes` (with `npusPerNode` of each; by default all that a node has), or `npus` (up to eight are placed on one
    node and 0.5 is a die; more are divided into equal parts of nodes, whole nodes where it divides evenly), or neither
    of them and `cpus` or `memoryGib` alone, which are pooled from any nodes regardless of who holds their NPUs.
    `memoryGibByNode` takes memory from the named nodes and no others. A pool has no members to spread: its placement
    can only require one cabinet or one supernode.
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
        description="GiB from each of these nodes, whoever holds their NPUs; `memoryGib` is the sum",
    )
    spares: Annotated[int, Field(ge=0, le=48)] = 0
    placement: PlacementPolicy = PlacementPolicy()
    affinity: Affinity | None = None
    anti_affinity: Affinity | None = None
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] = 0
    preemption: Literal["Never", "LowerPriority"] = Field(
        "Never", description="whether it may preempt lower priorities"
    )
    lease_s: Annotated[float | None, Field(gt=0, le=1e9, description="seconds until release unless renewed")] = None
    reservation: str | None = Field(None, max_length=127, description="draw on this reservation")
    topology_version: str = Field("", max_length=200, description="refuse if the topology has changed since")
    exclude_nodes: list[NodeName] = Field(default_factory=empty_list, max_length=1024)

    REFERENCES: ClassVar = ("affinity", "anti_affinity", "reservation")

    def spec_dict(self) -> dict[str, Any]:
        """The spec alone, without labels, excluded nodes and the topology version it was planned on."""
        return self.model_copy(update={"labels": {}, "exclude_nodes": [], "topology_version": ""}).wire()

    def as_asked(self, project: str) -> dict[str, Any]:
        """The spec as a member of that project would request it again: defaults omitted, the project's own names
        unqualified."""
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
                raise ValueError(f"memoryGibByNode cannot be combined with {field}; request {field} separately")
        if self.placement.required or self.affinity is not None or self.anti_affinity is not None:
            raise ValueError(
                "memoryGibByNode names its nodes and cannot be combined with required placement or (anti-)affinity"
            )
        if self.preemption != "Never" or self.reservation is not None:
            raise ValueError("memoryGibByNode cannot preempt and cannot draw on a reservation")
        if self.memory_gib not in (0, total := sum(by_node.values())):
            raise ValueError(f"memoryGib must be the sum of memoryGibByNode, {total}, or be left out")
        self.memory_gib = total
        return self

    @model_validator(mode="after")
    def _one_size(self) -> AllocationRequest:
        if self.nodes is not None and self.npus is not None:
            raise ValueError("give either nodes or npus, not both")
        if self.nodes is None and self.npus is None:
            if not self.cpus and not self.memory_gib:
                raise ValueError("give nodes or npus, or cpus or memoryGib alone")
            if self.npus_per_node is not None or self.spares:
                raise ValueError("npusPerNode and spares are only valid with nodes or npus")
        return self


class QuotaRequest(ApiModel):
    """How much a project may hold at once. Anything left out is unlimited. A spare counts as eight NPUs."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"npus": 80},)

    npus: Annotated[float | None, Field(ge=0, le=MEMBERS_MAX * 8, multiple_of=0.5)] = None
    cpus: Annotated[int | None, Field(ge=0, le=1 << 40)] = None
    memory_gib: Annotated[int | None, Field(ge=0, le=1 << 40)] = None


class QuotaView(ResourceView):
    """A project's limits and its current usage."""

    npus: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    used_npus: NpuCount = 0
    used_cpus: float = 0
    used_memory_gib: float = 0


class RenewRequest(ApiModel):
    """How long the lease lasts from now."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"leaseS": 7200},)

    lease_s: float = Field(gt=0, le=1e9)


class BindingRequest(ApiModel):
    """Whether the nodes of an allocation are deployed and running, or switched off and kept."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"power": "On"},)

    power: Power = Field("On", description="Off: the nodes are stopped and switched off; their disks are kept")


class ReplaceRequest(ApiModel):
    """Which member to replace, and why (recorded in the allocation's history)."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "reason": "its fan is loud"},)

    node: NodeName
    reason: str = Field("Requested", max_length=200)


class RepairRequest(ApiModel):
    """Which member to repair in place, and how."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"node": "sn0-c00-n0", "task": "restart"},)

    node: NodeName
    task: InPlaceRepair = Field(description="what its agent does: restart its processes, reset its NPUs, or reboot it")


class MemberView(ApiModel):
    """One node of an allocation, or the allocation's part of it. `state` is the node's; `ready` is true once its agent
    has reported the requested state.

    While an allocation moves, a successor is deployed beside the member whose rank it will take over. `dies` lists the
    dies of a partial node (NPU k is dies 2k and 2k+1, or die k where it is one); `pool` members contribute only CPU
    sockets and memory.
    """

    node: str = Field(description="the node")
    cabinet: str = Field(description="the node's cabinet")
    role: Literal["member", "spare", "successor", "pool"] = Field(description="its role in the allocation")
    rank: int | None = Field(None, description="its position among the members")
    state: str = Field(description="the node's state")
    agent: str = Field(description="the agent's connection: Connected, Stale or Lost")
    health: str = Field(description="hardware health: Healthy, SubHealthy, Unhealthy or Unknown")
    fault: str = Field("", description="component, code and level of the fault behind its health")
    level: str | None = Field(None, description="the worst level among its faults")
    ready: bool = Field(description="whether its agent has reported the requested state")
    stage: str | None = Field(None, description="the stage the node's agent is at, or the one that failed")
    message: str | None = Field(None, description="details of that stage, or why the node is out of service")
    failed_at: str | None = Field(
        None, description="when a lost or unhealthy node failed: its last report, or the first of the fault"
    )  # fmt: skip
    detected_at: str | None = Field(None, description="when the node was declared lost, or the fault first reported")
    npus: NpuCount | None = Field(None, description="NPUs it holds of the node, where that is not all of it")
    dies: list[int] | None = Field(None, description="dies it holds, by number within the node")
    cpus: int | None = Field(None, description="CPU sockets it holds")
    memory_gib: int | None = Field(None, description="memory it holds, GiB")

    @property
    def gone(self) -> bool:
        """Whether the allocation has lost it: its agent is Lost, or the node is Quarantined or Retired."""
        return self.agent == "Lost" or self.state in ("Quarantined", "Retired")


class AllocationView(ResourceView):
    """One allocation. `nodes` counts members and `npus` the NPUs they hold; `request` is the spec as granted, and is
    itself a valid request."""

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
    request: dict[str, Any] = Field(default_factory=empty_dict, description="the spec as last granted")

    @property
    def growth(self) -> str:
        """How many of the members added by the last change had been spares, as text; empty if it added none."""
        found = (each for each in self.conditions if each.type == GROWN and each.observed_generation == self.generation)
        return next((each.message for each in found), "")
