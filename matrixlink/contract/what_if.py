"""What-ifs (the effects of hypothetical failures, drains and repairs): requests and views. Rates are GB/s (10^9 bytes
per second) each way."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel
from matrixlink.model.qos import QosClass

ELEMENTS_MAX = 256
Element = Annotated[str, Field(min_length=1, max_length=80)]
Elements = Annotated[list[Element], Field(max_length=ELEMENTS_MAX)]


class WhatIfRequest(ApiModel):
    """Parts of the fabric to fail, drain or repair, all at once: links, switches, nodes, cabinets, sub-planes, planes.
    A repaired part is fully working and in use."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"fail": ["sn0-l2p3-k11"]},)

    fail: Elements = Field(
        default_factory=empty_list,
        description="parts to fail: links, switches, nodes, NPUs, cabinets, bus devices, sub-planes or planes",
    )
    drain: Elements = Field(default_factory=empty_list, description="parts to take out of use, of the same kinds")
    repair: Elements = Field(
        default_factory=empty_list,
        description="parts to repair and return to use, of the same kinds; applied before `fail` and `drain`",
    )


class CutPair(ApiModel):
    """Two members without a path between them; `*` is any member."""

    a: str = Field(description="one member, or `*` for any")
    b: str = Field(description="the other member, or `*` for any")


class SliceEffect(ApiModel):
    """The effect on one slice. `cut` names at most 20 of its `pairs_cut`."""

    slice: str = Field(description="key of the slice")
    project: str = Field(description="project of the slice")
    plane: Plane = Field(description="plane of the slice: ub, rdma or vpc")
    qos_class: QosClass = Field(description="class of the slice, which decides who yields first")
    floor_gbps_per_npu: float = Field(description="floor that it was promised, GB/s per NPU each way")
    kept_before_gbps_per_npu: float = Field(description="how much of the floor it keeps now, GB/s per NPU each way")
    kept_after_gbps_per_npu: float = Field(description="how much of the floor it would keep, GB/s per NPU each way")
    broken: bool = Field(description="whether it would keep less of its floor than now")
    rerouted: bool = Field(description="whether its routes would change")
    pairs_cut: int = Field(0, description="number of pairs of members that would lose their last path")
    cut: list[CutPair] = Field(default_factory=empty_list, description="these pairs, at most 20")
    protection_lost: str = Field(
        "", description="why its protection would be lost; empty if it would not be, or already is"
    )


class OverfullLink(ApiModel):
    """A link whose floors would exceed its capacity."""

    link: str = Field(description="link whose floors would exceed its capacity")
    plane: Plane = Field(description="plane of the link: ub, rdma or vpc")
    floors_gbps: float = Field(description="GB/s each way that slices were promised on it")
    gbps: float = Field(description="GB/s each way that it would carry; 0 if it would be dead")
    share: float | None = Field(None, description="floors as a multiple of the capacity, above 1; null for a dead link")


class PlaneEffect(ApiModel):
    """One plane: ports that would change, and the floors of all slices over all their members' NPUs."""

    plane: Plane = Field(description="plane that the counts are of: ub, rdma or vpc")
    ports_changed: int = Field(description="number of its ports that would carry another rate, or enter or leave use")
    slices_affected: int = Field(description="number of slices listed that are on it")
    slices_rerouted: int = Field(description="number of these whose routes would change")
    floors_broken: int = Field(description="number of these that would keep less of their floor than now")
    floors_before_gbps: float = Field(description="GB/s of floors that these slices keep now, over all their NPUs")
    floors_after_gbps: float = Field(description="GB/s of floors that these slices would keep, over all their NPUs")
    pairs_cut: int = Field(description="number of pairs of members that would lose their last path")
    links_overfull: int = Field(description="number of links whose floors would exceed their capacity")
    protections_lost: int = Field(description="number of slices whose protection would be lost")


class WhatIfView(ApiModel):
    """The effects on all slices concerned. Nothing is changed."""

    fail: list[str] = Field(description="parts that would fail, as they were given")
    drain: list[str] = Field(description="parts that would be taken out of use, as they were given")
    repair: list[str] = Field(description="parts that would be repaired and returned to use, as they were given")
    floors_hold: bool = Field(description="whether no slice would keep less of its floor than now")
    planes: list[PlaneEffect] = Field(description="effects by plane, one entry for each of the three")
    slices: list[SliceEffect] = Field(
        description="slices whose ports would change, or that have less than they were promised now on the same planes"
    )
    links_overfull: list[OverfullLink] = Field(
        default_factory=empty_list,
        description="links whose floors would exceed their capacity, the worst first; at most 100, `planes` counts all",
    )
