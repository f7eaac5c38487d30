"""Plans and fragmentation: requests and views."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.fields import NpuCount


class PlanRequest(AllocationRequest):
    """An allocation's spec to plan for. With `topologyVersion` it is planned on that version or refused."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": 1},)


class PlanDomain(ApiModel):
    """A cabinet or supernode that the request could use: how many nodes have room for a member, how many are missing,
    and the obstacles with the number of nodes each affects."""

    domain: str = Field(description="name of the cabinet or supernode")
    level: Literal["cabinet", "supernode"] = Field(description="kind of domain")
    room: int = Field(description="nodes that have room for a member")
    short: int = Field(description="nodes that are missing there")
    reasons: dict[str, int] = Field(description="obstacles, each with the number of nodes that it affects")


class PlanChange(ApiModel):
    """One change that would make the request fit.

    `Fewer` members, a constraint to `Relax` (`to` is the value it would need), allocations to `Release`, to `Preempt`
    (if the request were allowed to preempt) or to `Move` first. `exact`: proven that no smaller change of this kind
    suffices.
    """

    kind: Literal["Fewer", "Relax", "Release", "Preempt", "Move"] = Field(
        description="what to change: Fewer members, a constraint to Relax, or allocations to Release, Preempt or Move"
    )
    nodes: int | None = Field(None, description="with Fewer: number of members that would fit")
    npus: NpuCount | None = Field(
        None, description="with Release, Preempt and Move: NPUs of those allocations that it concerns"
    )
    cpus: int | None = Field(None, description="with Fewer: CPU sockets that would fit")
    memory_gib: int | None = Field(None, description="with Fewer: memory that would fit, GiB")
    rule: str | None = Field(None, description="with Relax: the field of the request to change")
    to: str | None = Field(None, description="with Relax: the value it would need; null: leave it out")
    exact: bool = Field(False, description="whether it is proven that no smaller change of this kind suffices")
    allocations: list[str] = Field(
        default_factory=empty_list, description="with Release, Preempt and Move: the allocations"
    )
    message: str = Field(description="the change as a sentence")


class PlanLoss(ApiModel):
    """The worst case of losing one `over`: members lost entirely, and the share of the members' UB bandwidth that is
    lost."""

    over: Literal["node", "cabinet", "supernode", "l1", "l2", "communication-cabinet"] = Field(
        description="kind of domain or switch that is lost"
    )
    members: int = Field(description="members that are lost entirely")
    ub_share: float = Field(description="share of the UB bandwidth of all members that is lost, 0 to 1")


class PlanView(ApiModel):
    """Whether a request would fit now, and where; otherwise why not and what would help. Nothing is created.

    `blastRadius` gives the most that losing one domain or switch would take; `earliestStart` is when the request fits
    if every lease and reservation ends when it is due.
    """

    fits: bool = Field(description="whether it would be granted now, by preemption if the request allows that")
    topology_version: str = Field(description="topology version that it was planned on")
    nodes: int = Field(description="members of the request; 0: sockets and memory alone")
    npus: NpuCount = Field(description="NPUs of the request, without spares; a single die counts as a half")
    spares: int = Field(description="spares of the request")
    members: list[str] = Field(
        default_factory=empty_list, description="nodes that its members would have; empty if there is no room"
    )
    spare_nodes: list[str] = Field(default_factory=empty_list, description="nodes that its spares would have")
    pool_nodes: list[str] = Field(default_factory=empty_list, description="nodes that would give CPU sockets or memory")
    preempts: list[str] = Field(default_factory=empty_list, description="allocations that it would preempt")
    blast_radius: list[PlanLoss] = Field(
        default_factory=empty_list,
        description="the worst case for each kind of domain or switch that may be lost; empty if there is no room",
    )
    message: str = Field("", description="why there is no room; empty if there is")
    blocking: list[PlanDomain] = Field(
        default_factory=empty_list, description="the domains closest to fitting it, best first; empty if there is room"
    )
    changes: list[PlanChange] = Field(
        default_factory=empty_list,
        description="changes each of which would make it fit; empty if there is room, or if none was found",
    )
    earliest_start: str | None = Field(
        None, description="when it fits if leases and reservations end when due, in emulated time; null: it never would"
    )


class FragmentationView(ApiModel):
    """How free nodes are distributed: the largest free block in one cabinet and in one supernode, and the number of
    domains by the block size that they can hold."""

    topology_version: str = Field(description="topology version that was counted")
    nodes: int = Field(description="nodes of the machine, in whatever state")
    free_nodes: int = Field(description="nodes that are up and entirely free")
    free_npus: NpuCount = Field(description="free NPUs on nodes that are up, a single die counting as a half")
    largest_block: dict[str, int] = Field(
        description="largest gang of whole nodes that fits in one cabinet, and in one supernode"
    )
    cabinets_with_block_of: dict[str, int] = Field(
        description="number of cabinets that have room for a block, by its size in nodes"
    )
    supernodes_with_block_of: dict[str, int] = Field(
        description="number of supernodes that have room for a block, by its size in nodes"
    )
