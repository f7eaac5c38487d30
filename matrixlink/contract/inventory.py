"""Links, switches, planes, QoS classes, and events on all of them: views. Rates are GB/s (10^9 bytes per second) each
way."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ResourceView


class LinkView(ResourceView):
    """One link now. `gbps` is its presumed rate, and `reason` why that is below what it was built for: PortDown and
    LanesLost come from the port itself, ProbeLost and ProbeSlow from probes, Damped means it flapped and is held down
    until `damped_until`. `floors_gbps` is what slices have been promised on it."""

    state: str = Field("", description="Up, Degraded (below its built rate) or Down (it carries nothing)")
    plane: Plane = Field(description="plane it belongs to: ub, rdma or vpc")
    kind: str = Field(
        description="kinds of its two ends, such as die-l1, l1-l2, die-leaf, leaf-spine or qingtian-fabric"
    )
    node: str | None = Field(None, description="node that it belongs to; null between switches")
    sub_plane: int | None = Field(None, description="sub-plane it belongs to (RDMA: subnet); null if it is in none")
    ends: list[str] = Field(description="the two parts that it connects")
    built_gbps: float = Field(description="GB/s each way that it was built for")
    gbps: float = Field(description="GB/s each way that it is presumed to carry now; 0 while it is damped")
    floors_gbps: float = Field(0.0, description="GB/s each way that is promised to slices on it")
    drained: bool = Field(False, description="whether it is out of use: no new route uses it")
    reason: str = Field(
        "",
        description="why it is below its built rate: PortDown, LanesLost, ProbeLost, ProbeSlow or Damped; else empty",
    )
    lanes: str | None = Field(None, description="lanes left, 1/2 or 1/4, if its rate is exactly that; else null")
    damped_until: str | None = Field(
        None,
        description="until when it is held down because it changed state too often, in emulated time; null if it is "
        "not",
    )


class SwitchView(ResourceView):
    """One switch chip; `ports_down` counts the reported ports leading to it that carry nothing."""

    state: str = Field(
        "", description="Up, Degraded if any port leading to it is below its built rate, Down if all carry nothing"
    )
    plane: Plane = Field(description="plane it belongs to: ub or rdma")
    kind: str = Field(description="l1 (in a node) or l2 (of UB), leaf or spine (of RDMA)")
    cabinet: str | None = Field(None, description="cabinet it is in; null if it is in none")
    node: str | None = Field(None, description="node that it is in; null outside of nodes")
    sub_plane: int | None = Field(None, description="sub-plane it belongs to (RDMA: subnet); null if it serves several")
    ports: int = Field(description="number of links that end at it")
    ports_down: int = Field(0, description="number of nodes' ports leading to it that carry nothing")
    ports_degraded: int = Field(
        0, description="number of nodes' ports leading to it that carry less than they were built for, but something"
    )


class PlaneSummary(ResourceView):
    """One plane across all supernodes: rates per node and endpoint, latency, and current losses."""

    state: str = Field("", description="Up, or Degraded while any node's port on it is below its built rate")
    sub_planes: int = Field(description="number of sub-planes that it is divided into; 1 on RDMA and VPC")
    uplink_gbps: float = Field(description="GB/s each way of a whole node in one sub-plane")
    endpoint_gbps: float = Field(
        description="GB/s each way of one endpoint (a die; on VPC the node's card) in one sub-plane"
    )
    npu_gbps: float = Field(description="GB/s each way of one NPU over all sub-planes: the largest floor it can have")
    latency_us: float = Field(description="one-way latency between two nodes through the switches, in microseconds")
    switches_between_nodes: int = Field(description="number of switches on a path between two nodes")
    qos_mechanism: str = Field(description="how hardware of this kind keeps traffic classes apart")
    links: int = Field(description="number of its links, in all supernodes")
    links_down: int = Field(description="number of nodes' ports on it that carry nothing")
    links_degraded: int = Field(
        description="number of nodes' ports on it that carry less than they were built for, but something"
    )
    slices: int = Field(description="number of slices on it")


class QosClassView(ResourceView):
    """One class: its default weight, whether it has floors, and its rank when someone has to yield."""

    state: str = Field("", description="always Offered")
    weight: float = Field(description="weight of its slices in sharing free capacity, unless they set their own")
    floor: Literal["required", "optional", "none"] = Field(
        description="whether its slices must, may or cannot have a guaranteed floor"
    )
    rank: int = Field(description="order in which floors are kept when capacity is lost; 0 first")
    sentence: str = Field(description="what a slice of this class is promised, as a sentence")
