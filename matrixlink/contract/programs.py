"""Programs: what a node's agent is to hold for each slice. Rates are GB/s (10^9 bytes per second) each way."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixlink.contract.peerings import SecurityRule
from matrixlink.model.qos import QosClass


class StripeView(ApiModel):
    """`weight` of the traffic uses this sub-plane (RDMA: die port), divided over its paths by `spread`; an empty
    `spread` divides it evenly."""

    sub_plane: int = Field(description="number of the sub-plane, on RDMA of the die port")
    weight: float = Field(description="fraction of the traffic that uses it, 0 to 1")
    spread: list[float] = Field(
        default_factory=empty_list,
        description="fractions of that on each of its paths, in the order of its L2 chips or spines; empty if even",
    )


class ProgramPeering(ApiModel):
    """An agent's part of one peering of its slice: the members on the other side, the key, and the routes to them."""

    name: str = Field(description="key of the peering")
    slice: str = Field(description="key of the slice on the other side")
    isolation_key: int = Field(description="the peering's own partition key or VNI, used between the two slices")
    peers: list[str] = Field(description="members of the other slice, except the node itself")
    stripes: list[StripeView] = Field(
        default_factory=empty_list, description="routes to them, except where a detour applies"
    )
    detours: dict[str, list[StripeView]] = Field(
        default_factory=empty_dict,
        description="routes of their own, by peer, endpoint of the node, or peer and its endpoint",
    )
    security_rules: list[SecurityRule] = Field(
        default_factory=empty_list,
        description="on VPC: traffic that the peering allows, in addition to the rules of the slices",
    )


class ProgramView(ResourceView):
    """What one node's agent is to program for one slice, named `<slice>.<node>`. `stripes` apply to all peers and dies
    except those in `detours` (`sn0-c01-n2`, `npu5-die1`, `sn0-c01-n2-npu5-die1`), which have routes of their own."""

    state: str = Field(
        "",
        description="Pending until the agent reports Programmed or Failed; Clearing, then Cleared, for `clear`",
    )
    slice: str = Field(description="key of the slice")
    node: str = Field(description="node whose agent programs it")
    plane: Plane = Field(description="plane of the slice: ub, rdma or vpc")
    instance: str = Field(description="key of the instance that the slice serves")
    action: Literal["program", "clear"] = Field(description="program: write the tables; clear: remove them")
    isolation: str = Field(description="partitionKey on UB and RDMA, vni on VPC")
    isolation_key: int = Field(description="the partition key or VNI itself, unique to the slice")
    qos_class: QosClass = Field(description="class of the slice: Guaranteed, Burstable or BestEffort")
    weight: float = Field(description="weight of the share in capacity promised to nobody")
    floor_gbps: float = Field(description="GB/s guaranteed to all NPUs of the node together, each way")
    ceiling_gbps: float | None = Field(
        None, description="the most GB/s that all NPUs of the node together may use, each way; null: no limit"
    )
    peers: list[str] = Field(default_factory=empty_list, description="other members of the slice")
    stripes: list[StripeView] = Field(
        default_factory=empty_list, description="routes to them, except where a detour applies"
    )
    detours: dict[str, list[StripeView]] = Field(
        default_factory=empty_dict,
        description="routes of their own, by peer, endpoint of the node, or peer and its endpoint",
    )
    peerings: list[ProgramPeering] = Field(
        default_factory=empty_list,
        description="members of other slices that this node may reach, each peering with its own key and routes",
    )
    security_rules: list[SecurityRule] = Field(
        default_factory=empty_list,
        description="on VPC: traffic that the node accepts and sends, in addition to that within the slice",
    )
    acknowledged_generation: int = Field(
        0, description="newest generation that the agent reported as programmed; 0 before the first"
    )
    message: str = Field("", description="why the agent could not program it, or has to write it again; else empty")


class DesiredProgram(ApiModel):
    """One slice that an agent is to program or to clear. `program` is included when the agent does not hold this
    generation, or has to write it `again` because what it read back differs."""

    slice: str = Field(description="key of the slice")
    generation: int = Field(description="generation that the agent is to hold")
    plane: Plane | None = Field(
        None, description="plane of the slice; null if nothing is known of it and it is only to be cleared"
    )
    action: Literal["program", "clear"] = Field(description="program: write the tables; clear: remove them")
    program: ProgramView | None = Field(
        None,
        description="what to write; null if the agent holds this generation already, or is to clear a slice unknown "
        "here",
    )
    again: bool = Field(
        False,
        description="whether to write it although the agent holds this generation, since the table it read back "
        "differs",
    )
