"""Loads that workloads offer to the network, and their views."""

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
    """A workload's load: `gbps_per_npu` sent by every NPU of the members of a slice, or of an instance's slice on a
    plane, or of some `members` only. Patterns: all-to-all, to all others equally; permutation, each to the member
    halfway round; ring, each to the next; incast, all to `target` (by default the first); pull, each to all of
    `targets` equally. With `bursts` the rate is the mean of a bursty load, and the view shows the rate of a burst."""

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
        """Whether this load is sent by that table of that slice."""
        if self.slice is not None:
            return slice == self.slice
        return bool(table.get("instance") == self.instance and table.get("plane") == self.plane)

    def senders(self, tables: Mapping[str, Table]) -> int:
        """The number of a slice's members that send. No member sends to itself, or to a node without a table."""
        if self.pattern == "pull":
            asked = tables.keys() if self.members is None else tables.keys() & set(self.members)
            return sum(any(target != node and target in tables for target in self.aims()) for node in asked)
        return len(tables) - (self.pattern == "incast") if len(tables) > 1 else 0

    def complete(self, tables: Mapping[str, Table]) -> bool:
        """Whether all members that it names have a table."""
        return self.members is None or all(node in tables for node in self.members)

    def aims(self) -> tuple[str, ...]:
        """The target nodes, if it names any."""
        return tuple(map(str, self.targets or ([self.target] if self.target is not None else [])))


class BurstPorts(ApiModel):
    """The capacity of one node's ports left for a burst, an entry per sub-plane, GB/s: of the whole node out and in,
    and of one endpoint (the slowest die's links or port; on VPC the card)."""

    out_gbps: list[float]
    in_gbps: list[float]
    endpoint_out_gbps: list[float]
    endpoint_in_gbps: list[float]


class Burst(ApiModel):
    """The bandwidth of a burst of a load, beside the present traffic of others. `gbps_per_die`: the rate of the slowest
    die of an all-to-all; `ports`: the free capacity of each member's ports, for transfers that come one by one."""

    gbps_per_die: float | None = None
    ports: dict[str, BurstPorts] = Field(default_factory=empty_dict)


class LoadView(ResourceView):
    """A load, and its rates on the slices it uses, GB/s over all members."""

    state: str = "Offered"
    load: Load
    slices: list[str]
    members: int
    offered_gbps: float
    sent_gbps: float
    dropped_gbps: float
    burst: Burst | None = None
