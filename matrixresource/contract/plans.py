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

    domain: str
    level: Literal["cabinet", "supernode"]
    room: int
    short: int
    reasons: dict[str, int]


class PlanChange(ApiModel):
    """One change that would make the request fit.

    `Fewer` members, a constraint to `Relax` (`to` is the value it would need), allocations to `Release`, to `Preempt`
    (if the request were allowed to preempt) or to `Move` first. `exact`: proven that no smaller change of this kind
    suffices.
    """

    kind: Literal["Fewer", "Relax", "Release", "Preempt", "Move"]
    nodes: int | None = None
    npus: NpuCount | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    rule: str | None = None
    to: str | None = None
    exact: bool = False
    allocations: list[str] = Field(default_factory=empty_list)
    message: str


class PlanLoss(ApiModel):
    """The worst case of losing one `over`: members lost entirely, and the share of the members' UB bandwidth that is
    lost."""

    over: Literal["node", "cabinet", "supernode", "l1", "l2", "communication-cabinet"]
    members: int
    ub_share: float


class PlanView(ApiModel):
    """Whether a request would fit now, and where; otherwise why not and what would help. Nothing is created.

    `blastRadius` gives the most that losing one domain or switch would take; `earliestStart` is when the request fits
    if every lease and reservation ends when it is due.
    """

    fits: bool
    topology_version: str
    nodes: int
    npus: NpuCount
    spares: int
    members: list[str] = Field(default_factory=empty_list)
    spare_nodes: list[str] = Field(default_factory=empty_list)
    pool_nodes: list[str] = Field(default_factory=empty_list)
    preempts: list[str] = Field(default_factory=empty_list)
    blast_radius: list[PlanLoss] = Field(default_factory=empty_list)
    message: str = ""
    blocking: list[PlanDomain] = Field(default_factory=empty_list)
    changes: list[PlanChange] = Field(default_factory=empty_list)
    earliest_start: str | None = None


class FragmentationView(ApiModel):
    """How free nodes are distributed: the largest free block in one cabinet and in one supernode, and the number of
    domains by the block size that they can hold."""

    topology_version: str
    nodes: int
    free_nodes: int
    free_npus: NpuCount
    largest_block: dict[str, int]
    cabinets_with_block_of: dict[str, int]
    supernodes_with_block_of: dict[str, int]
