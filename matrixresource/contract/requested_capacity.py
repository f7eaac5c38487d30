"""The capacity that a request asks for, and where it is placed: what allocations and reservations have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import reference_to
from matrixcommon.model.resource_model import ApiModel
from matrixresource.contract.fields import MEMBERS_MAX

TopologyVersion = Annotated[
    str, Field(max_length=200, description="topology version it was planned on, refused on any other; empty: on any")
]
ExcludedNodes = Annotated[
    list[NodeName], Field(max_length=1024, description="nodes it must not use; they are not stored with its spec")
]


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
    def _check_combination(self) -> PlacementPolicy:
        if self.max_per_domain is not None and self.policy != "spread":
            raise ValueError("maxPerDomain is only valid with policy spread")
        levels = [block.level for block in self.blocks]
        if len(set(levels)) != len(levels):
            raise ValueError("blocks: give at most one size per level")
        return self


class Affinity(ApiModel):
    """Relation to other allocations: use only domains that all of them use (affinity), or none that any of them uses
    (anti-affinity)."""

    allocations: list[str] = Field(min_length=1, max_length=64, description="names of the other allocations")
    level: Literal["node", "cabinet", "supernode"] = Field(
        "cabinet", description="the kind of domain to share or to avoid"
    )
    required: bool = Field(True, description="refuse the request rather than relax this")

    REFERENCES: ClassVar = ("allocations",)

    def shown_to(self, project: str) -> Affinity:
        """A copy with plain names in place of the keys of this project's own allocations."""
        return self.model_copy(update={"allocations": [reference_to(key, project) for key in self.allocations]})


class CapacityRequest(ApiModel):
    """The capacity that is requested, and where it is placed; granted in full or not at all.

    Give `nodes` (with `npusPerNode` of each; by default all that a node has), or `npus` (up to eight are placed on one
    node and 0.5 is a die; more are divided into equal parts of nodes, whole nodes where it divides evenly), or neither
    of them and `cpus` or `memoryGib` alone, which are pooled from any nodes regardless of who holds their NPUs.
    `memoryGibByNode` takes memory from the named nodes and no others. A pool has no members to spread: its placement
    can only require one cabinet or one supernode.
    """

    project: str = Field(
        "default",
        min_length=1,
        max_length=63,
        description="the project that owns it and whose quota applies; cannot be changed",
    )
    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")
    nodes: int | None = Field(
        None,
        ge=1,
        le=MEMBERS_MAX,
        description="number of members, whole nodes unless npusPerNode is given; excludes npus",
    )
    npus: float | None = Field(
        None,
        ge=0.5,
        le=MEMBERS_MAX * 8,
        multiple_of=0.5,
        description="NPUs in all, 0.5 being a die: up to a node's number from one node, more in equal parts of nodes; "
        "excludes nodes",
    )
    npus_per_node: float | None = Field(
        None,
        ge=0.5,
        le=8,
        multiple_of=0.5,
        description="NPUs of each member: 0.5 (a die) or a whole number; by default all of the node, or what divides "
        "npus",
    )
    cpus: int = Field(
        0, ge=0, le=MEMBERS_MAX * 4, description="CPU sockets in all, pooled from any nodes, whoever holds their NPUs"
    )
    memory_gib: int = Field(
        0, ge=0, le=1 << 30, description="memory in all, GiB, pooled from any nodes, whoever holds their NPUs"
    )
    memory_gib_by_node: dict[NodeName, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(
        default_factory=empty_dict,
        max_length=MEMBERS_MAX,
        description="GiB from each of these nodes, whoever holds their NPUs; `memoryGib` is the sum",
    )
    spares: int = Field(0, ge=0, le=48, description="whole nodes held in addition, to replace lost members")
    placement: PlacementPolicy = Field(PlacementPolicy(), description="where its members may be placed")
    affinity: Affinity | None = Field(None, description="place it only in domains that all these allocations use")
    anti_affinity: Affinity | None = Field(None, description="place it in no domain that any of these allocations uses")
    priority: int = Field(
        0, ge=-1_000_000_000, le=1_000_000_000, description="allocations with a higher priority may preempt this one"
    )

    REFERENCES: ClassVar[tuple[str, ...]] = ("affinity", "anti_affinity")

    @model_validator(mode="after")
    def _check_named_memory(self) -> Self:
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
        if self.memory_gib not in (0, total := sum(by_node.values())):
            raise ValueError(f"memoryGib must be the sum of memoryGibByNode, {total}, or be left out")
        self.memory_gib = total
        return self

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.nodes is not None and self.npus is not None:
            raise ValueError("give either nodes or npus, not both")
        if self.nodes is None and self.npus is None:
            if not self.cpus and not self.memory_gib:
                raise ValueError("give nodes or npus, or cpus or memoryGib alone")
            if self.npus_per_node is not None or self.spares:
                raise ValueError("npusPerNode and spares are only valid with nodes or npus")
        return self
