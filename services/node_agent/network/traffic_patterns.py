"""What a workload offers the network, and what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixlink.fabric.contention.patterns import Pattern

Table = Mapping[str, Any]


class Load(ApiModel):
    """What a workload offers: `gbps_per_npu` out of every NPU of the members of a slice, or of an instance's slice on a
    plane, or only of some `members`. all-to-all: to all others alike; permutation: each to one, halfway round; ring:
    each to the next; incast: all to `target` (by default the first); pull: each to all of `targets` alike. One that
    `bursts` offers so much on average, all at once now and then: what a burst gets is shown."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"slice": "deepseek-r1-ub", "gbpsPerNpu": 100},)

    slice: str | None = Field(None, max_length=253)
    instance: str | None = Field(None, max_length=253)
    plane: Plane = Plane.UB
    pattern: Pattern = "all-to-all"
    gbps_per_npu: float = Field(ge=0, le=1e4)
    target: NodeName | None = None
    targets: list[NodeName] | None = Field(None, min_length=1, max_length=4096)
    members: list[NodeName] | None = Field(None, max_length=4096)
    bursts: bool = False

    REFERENCES: ClassVar = ("slice", "instance")

    def means(self, slice: str, table: Table) -> bool:
        """Whether a slice's table is one that this load goes by."""
        if self.slice is not None:
            return slice == self.slice
        return bool(table.get("instance") == self.instance and table.get("plane") == self.plane)

    def senders(self, tables: Mapping[str, Table]) -> int:
        """How many of a slice's members send: nobody does to itself, or to a node that has no table."""
        if self.pattern == "pull":
            asked = tables.keys() if self.members is None else tables.keys() & set(self.members)
            return sum(any(target != node and target in tables for target in self.aims()) for node in asked)
        return len(tables) - (self.pattern == "incast") if len(tables) > 1 else 0

    def complete(self, tables: Mapping[str, Table]) -> bool:
        """Whether everybody that it names has a table."""
        return self.members is None or all(node in tables for node in self.members)

    def aims(self) -> tuple[str, ...]:
        """The nodes that it goes to, where it names them."""
        return tuple(map(str, self.targets or ([self.target] if self.target is not None else [])))


class BurstPorts(ApiModel):
    """What a burst may use of one node's ports, an entry per sub-plane, GB/s: of the whole node out and in, and of one
    endpoint (the slowest die's links or port, on VPC the card)."""

    out_gbps: list[float]
    in_gbps: list[float]
    endpoint_out_gbps: list[float]
    endpoint_in_gbps: list[float]


class Burst(ApiModel):
    """What a load gets when it comes all at once, others sending what they do now. `gbps_per_die`: of an all-to-all,
    what its slowest die sends; `ports`: what each member's ports have left, for transfers that come one by one."""

    gbps_per_die: float | None = None
    ports: dict[str, BurstPorts] = Field(default_factory=empty_dict)


class LoadView(ResourceView):
    """A load, and what of it moves on the slices it goes by, GB/s over all members."""

    state: str = "Offered"
    load: Load
    slices: list[str]
    members: int
    offered_gbps: float
    sent_gbps: float
    dropped_gbps: float
    burst: Burst | None = None
