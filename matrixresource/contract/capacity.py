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

    domain: str
    level: Literal["cabinet", "supernode"]
    state: str
    nodes: int
    up: int
    free: int
    allocated: int
    spares: int
    kept: int
    utilisation: float
    largest_block: int


class PlaceableBlock(ApiModel):
    """How many gangs of `nodes` whole nodes fit side by side inside domains of `level`, and the share of free nodes
    left over."""

    level: Literal["cabinet", "supernode"]
    nodes: int
    count: int
    stranded: Share


class CapacityView(ApiModel):
    """Capacity at one moment. Shares run from 0 to 1. Nodes that are down or closed are left out, except that
    `utilisation` counts those that are held or kept for a defragmentation.

    `fragmentation` has for `node` the share of free capacity that is on partly used nodes; for `cabinet` and
    `supernode` it is how far the largest free block falls short of the one there would be if all free nodes were
    together.
    """

    topology_version: str
    nodes: int
    nodes_up: int
    nodes_free: int
    npus_free: float
    spares: int
    utilisation: float
    largest_block: dict[str, int]
    fragmentation: dict[str, Share]
    nodes_by_state: dict[str, int]
    nodes_by_health: dict[str, int]
    blocks: list[PlaceableBlock] = Field(default_factory=empty_list)
    supernodes: list[DomainCapacity] = Field(default_factory=empty_list)
    cabinets: list[DomainCapacity] = Field(default_factory=empty_list)
