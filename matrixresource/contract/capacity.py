"""How full the machine is and how its free capacity lies, as it is shown."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel

Share = Annotated[float, AfterValidator(lambda share: round(share, 6))]
"""0 to 1, to six places."""


class DomainCapacity(ApiModel):
    """One cabinet or supernode. `up` nodes are there for newcomers or their holders: not faulty, closed or kept.

    `free` are whole free nodes, `held` nodes of which somebody has something, `spares` whole ones held beside members,
    `kept` those a defragmentation needs. `utilisation` is the share of dies that is held, of nodes that are up, held or
    kept; `largestBlock` the most whole nodes one gang could have here.
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
    """How many gangs of so many whole nodes fit beside one another inside domains of `level`, and the share of the free
    nodes that none of them reaches."""

    level: Literal["cabinet", "supernode"]
    nodes: int
    count: int
    stranded: Share


class CapacityView(ApiModel):
    """One moment. Shares run from 0 to 1; nodes that are down or closed belong to none, except that
    `utilisation` counts those that somebody holds or a defragmentation keeps.

    `fragmentation`: of what is free the share on nodes in use (`node`); what the largest block of a cabinet or
    supernode lacks of the one there would be if all free nodes lay together.
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
