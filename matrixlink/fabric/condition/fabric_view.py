"""FabricView: what one instance may use of the fabric right now.

This is what MatrixLink tells a workload: for each plane and each member node, how much of each sub-plane's uplink the
instance's slice has, how fast one endpoint of that node is on each sub-plane, and the latency of the switches between
two nodes. The workload computes flows from it with the same `share` that admitted the slice. `generation` changes
whenever anything in the view does, so a reader with an older one knows that it is outdated.

All rates are GB/s (10^9 bytes per second) each way; all latencies are microseconds, one way.
"""

from __future__ import annotations

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel


class NodePorts(ApiModel):
    """One node's ports on one plane, an entry per sub-plane.

    `uplink_gbps`: what the instance may send out of, or receive into, the whole node. UB has seven entries, 448.0 each
    when healthy and not shared; RDMA one, 400.0; VPC one, 50.0. `endpoint_gbps`: what one endpoint has. UB: a die's
    seven links of 28.0; RDMA: a die's port, 25.0; VPC: the node's card, 50.0. It is that of the node's slowest
    endpoint, so that a collective over all of them is not overestimated.
    """

    uplink_gbps: list[float] = Field(
        description="GB/s each way that the instance may use of the whole node, by sub-plane"
    )
    endpoint_gbps: list[float] = Field(
        description="GB/s each way of the node's slowest endpoint (a die; on VPC the card), by sub-plane"
    )


class PlaneView(ApiModel):
    """One plane as the instance sees it. `latency_us` is the one-way latency through the switches between two nodes."""

    nodes: dict[str, NodePorts] = Field(description="what the instance may use of each member node on this plane")
    latency_us: float = Field(description="one-way latency through the switches between two nodes, in microseconds")


class FabricView(ApiModel):
    """The planes on which an instance has slices. `slice` names the slice, or all of them joined by commas; `machine`
    is the model of its supernodes, as named in their spec."""

    slice: str = Field(description="key of the slice, or of all slices of the instance, joined by commas")
    instance: str = Field(description="key of the instance")
    machine: str = Field("", description="model of the supernodes, as in their machine file")
    generation: int = Field(
        0, description="incremented when anything in the view changes; for an instance, the sum over its slices"
    )
    planes: dict[Plane, PlaneView] = Field(
        default_factory=empty_dict, description="what the instance may use, by plane on which it has a slice"
    )


def merge_views(instance: str, views: list[FabricView]) -> FabricView:
    """One view of all slices of an instance. Its generation is the sum of theirs, so it changes with any of them."""
    planes: dict[Plane, PlaneView] = {}
    for view in views:
        planes |= view.planes
    return FabricView(
        slice=",".join(sorted(view.slice for view in views)),
        instance=instance,
        machine=views[0].machine if views else "",
        generation=sum(view.generation for view in views),
        planes=planes,
    )
