"""What is asked of plans and of the shape of what is free, and how it is answered."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.fields import NpuCount


class PlanRequest(AllocationRequest):
    """What an allocation would ask for. With `topologyVersion` it is answered on that version or refused."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": 1},)


class PlanDomain(ApiModel):
    """A cabinet or supernode the request could lie in: nodes with room for a member, how many are missing, and on how
    many of its nodes something stands in the way."""

    domain: str
    level: Literal["cabinet", "supernode"]
    room: int
    short: int
    reasons: dict[str, int]


class PlanChange(ApiModel):
    """One thing that would make it fit.

    `Fewer` members, a rule to `Relax` (`to` what it would have to be), allocations to `Release`, to `Preempt` (a
    request with that right would put them out) or to `Move` first. `exact`: it is proven that no smaller change of the
    kind would do.
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
    """The worst that the loss of one `over` takes: members lost whole, and the share of the members' UB bandwidth."""

    over: Literal["node", "cabinet", "supernode", "l1", "l2", "communication-cabinet"]
    members: int
    ub_share: float


class PlanView(ApiModel):
    """Whether a request would fit now, and where; otherwise why not and what would help. Nothing was created.

    `blastRadius` says what the loss of one domain or switch would take at the most; `earliestStart` when it fits if
    everybody leaves when they reported.
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
    """How the free nodes lie: the largest block in one cabinet and supernode, and cabinets by the block they hold."""

    topology_version: str
    nodes: int
    free_nodes: int
    free_npus: NpuCount
    largest_block: dict[str, int]
    cabinets_with_block_of: dict[str, int]
    supernodes_with_block_of: dict[str, int]
