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

    slice: str | None = Field(
        None, max_length=253, description="slice whose members send; null if `instance` and `plane` are given"
    )
    instance: str | None = Field(
        None,
        max_length=253,
        description="instance whose members send, on its slices of `plane`; null if `slice` is given",
    )
    plane: Plane = Field(Plane.UB, description="plane of the slices of `instance`; ignored with `slice`")
    pattern: Pattern = Field(
        "all-to-all",
        description="who sends to whom: each to all others, to one halfway round, to the next, all to `target`, or "
        "each to `targets`",
    )
    gbps_per_npu: float = Field(
        ge=0, le=1e4, description="GB/s that each NPU sends; the mean of a bursty load; 0 only with `bursts`"
    )
    target: NodeName | None = Field(None, description="only for incast: node that all send to; null: the first member")
    targets: list[NodeName] | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="only for pull, and required for it: nodes that each member sends to, in equal parts",
    )
    members: list[NodeName] | None = Field(None, max_length=4096, description="members that take part; null: all")
    bursts: bool = Field(
        False, description="whether it comes in bursts: then the view shows the rate of one beside the other traffic"
    )

    REFERENCES: ClassVar = ("slice", "instance")

    def matches(self, slice: str, table: Table) -> bool:
        """Whether this load is sent by that table of that slice."""
        if self.slice is not None:
            return slice == self.slice
        return bool(table.get("instance") == self.instance and table.get("plane") == self.plane)

    def sender_count(self, tables: Mapping[str, Table]) -> int:
        """The number of a slice's members that send. No member sends to itself, or to a node without a table."""
        if self.pattern == "pull":
            asked = tables.keys() if self.members is None else tables.keys() & set(self.members)
            return sum(any(target != node and target in tables for target in self.target_nodes()) for node in asked)
        return len(tables) - (self.pattern == "incast") if len(tables) > 1 else 0

    def is_complete(self, tables: Mapping[str, Table]) -> bool:
        """Whether all members that it names have a table."""
        return self.members is None or all(node in tables for node in self.members)

    def target_nodes(self) -> tuple[str, ...]:
        """The target nodes, if it names any."""
        return tuple(map(str, self.targets or ([self.target] if self.target is not None else [])))


class BurstPorts(ApiModel):
    """The capacity of one node's ports left for a burst, an entry per sub-plane, GB/s: of the whole node out and in,
    and of one endpoint (the slowest die's links or port; on VPC the card)."""

    out_gbps: list[float] = Field(description="GB/s left for sending out of the whole node, by sub-plane")
    in_gbps: list[float] = Field(description="GB/s left for receiving into the whole node, by sub-plane")
    endpoint_out_gbps: list[float] = Field(
        description="GB/s left for sending out of the slowest endpoint (a die; on VPC the card), by sub-plane"
    )
    endpoint_in_gbps: list[float] = Field(
        description="GB/s left for receiving into the slowest endpoint (a die; on VPC the card), by sub-plane"
    )


class Burst(ApiModel):
    """The bandwidth of a burst of a load, beside the present traffic of others. `gbps_per_die`: the rate of the slowest
    die of an all-to-all; `ports`: the free capacity of each member's ports, for transfers that come one by one."""

    gbps_per_die: float | None = Field(
        None,
        description="GB/s of the slowest die in an all-to-all; null for other patterns, and while a member has no "
        "routes",
    )
    ports: dict[str, BurstPorts] = Field(
        default_factory=empty_dict, description="capacity left for it on the ports of each member node"
    )


class LoadView(ResourceView):
    """A load, and its rates on the slices it uses, GB/s over all members."""

    state: str = Field("Offered", description="always Offered: a load that is removed is not listed")
    load: Load = Field(description="the load as it was requested")
    slices: list[str] = Field(description="slices that it uses: those with programmed routes on some powered node")
    members: int = Field(description="number of powered nodes with programmed routes, over all of these slices")
    offered_gbps: float = Field(description="GB/s that all senders offer together")
    sent_gbps: float = Field(
        description="GB/s of these that pass; what exceeds the capacity of the ports waits at the senders"
    )
    dropped_gbps: float = Field(description="GB/s of these that go into ports that carry nothing, and are lost")
    burst: Burst | None = Field(
        None, description="bandwidth of one burst beside the other traffic; null without `bursts`"
    )
