"""Views of utilisation and of how free capacity is distributed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel

Share = Annotated[float, AfterValidator(lambda share: round(share, 6))]
"""0 to 1, rounded to six places."""


class DomainCapacity(ApiModel):
    """Capacity of one cabinet or supernode. A node is `up` when it is usable by new or present holders: not faulty,
    closed or kept out.

    `free` counts nodes that are entirely free, `allocated` nodes that are held at least in part, `spares` whole nodes
    held as spares, `kept` nodes set aside for a defragmentation. `utilisation` is the share of held dies among nodes
    that are up, held or kept; `largestBlock` is the largest gang of whole nodes that fits here.
    """

    domain: str = Field(description="name of the cabinet or supernode")
    level: Literal["cabinet", "supernode"] = Field(description="kind of domain")
    state: str = Field(description="as a maintenance domain: Open, Closed, Draining or Drained")
    nodes: int = Field(description="nodes that are in it")
    up: int = Field(description="nodes that present or new holders can use")
    free: int = Field(description="nodes that are up and entirely free")
    allocated: int = Field(description="nodes that are held at least in part")
    spares: int = Field(description="nodes held as spares")
    kept: int = Field(description="nodes set aside for a defragmentation")
    utilisation: float = Field(description="share of dies that are held (0 to 1), on nodes that are up, held or kept")
    largest_block: int = Field(description="largest gang of whole nodes that fits in it")


class PlaceableBlock(ApiModel):
    """How many gangs of `nodes` whole nodes fit side by side inside domains of `level`, and the share of free nodes
    left over."""

    level: Literal["cabinet", "supernode"] = Field(description="kind of domain that holds each gang")
    nodes: int = Field(description="size of each gang, in whole nodes")
    count: int = Field(description="gangs of that size that fit side by side")
    stranded: Share = Field(description="share of the free nodes that are left over then, 0 to 1")


class CapacityView(ApiModel):
    """Capacity at one moment. Shares run from 0 to 1. Nodes that are down or closed are left out, except that
    `utilisation` counts those that are held or kept for a defragmentation.

    `fragmentation` has for `node` the share of free capacity that is on partly used nodes; for `cabinet` and
    `supernode` it is how far the largest free block falls short of the one there would be if all free nodes were
    together.
    """

    topology_version: str = Field(description="topology version that was counted")
    nodes: int = Field(description="nodes of the machine, in whatever state")
    nodes_up: int = Field(description="nodes that present or new holders can use")
    nodes_free: int = Field(description="nodes that are up and entirely free")
    npus_free: float = Field(description="free NPUs on nodes that are up, a single die counting as a half")
    spares: int = Field(description="nodes held as spares")
    utilisation: float = Field(
        description="share of dies that are held (0 to 1), on nodes that are up, held or kept for a defragmentation"
    )
    largest_block: dict[str, int] = Field(
        description="largest gang of whole nodes that fits in one cabinet, in one supernode, and in all of the machine"
    )
    fragmentation: dict[str, Share] = Field(
        description="how scattered free capacity is, 0 (not at all) to 1: by node, cabinet and supernode"
    )
    nodes_by_state: dict[str, int] = Field(description="number of nodes in each state")
    nodes_by_health: dict[str, int] = Field(description="number of nodes of each health")
    blocks: list[PlaceableBlock] = Field(
        default_factory=empty_list, description="how many gangs of each size fit, by kind of domain"
    )
    supernodes: list[DomainCapacity] = Field(default_factory=empty_list, description="capacity of each supernode")
    cabinets: list[DomainCapacity] = Field(default_factory=empty_list, description="capacity of each cabinet")
