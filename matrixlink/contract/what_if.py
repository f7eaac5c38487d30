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

    fail: Elements = Field(default_factory=empty_list)
    drain: Elements = Field(default_factory=empty_list)
    repair: Elements = Field(default_factory=empty_list)


class CutPair(ApiModel):
    """Two members without a path between them; `*` is any member."""

    a: str
    b: str


class SliceEffect(ApiModel):
    """The effect on one slice. `cut` names at most 20 of its `pairs_cut`."""

    slice: str
    project: str
    plane: Plane
    qos_class: QosClass
    floor_gbps_per_npu: float
    kept_before_gbps_per_npu: float
    kept_after_gbps_per_npu: float
    broken: bool
    """It would keep less of its floor than now."""
    rerouted: bool
    pairs_cut: int = 0
    cut: list[CutPair] = Field(default_factory=empty_list)
    protection_lost: str = ""
    """Why its protection would be lost; empty if it would not be, or already is."""


class OverfullLink(ApiModel):
    """A link whose floors would exceed its capacity."""

    link: str
    plane: Plane
    floors_gbps: float
    gbps: float
    share: float | None = None
    """Floors over capacity; unset for a dead link."""


class PlaneEffect(ApiModel):
    """One plane: ports that would change, and the floors of all slices over all their members' NPUs."""

    plane: Plane
    ports_changed: int
    slices_affected: int
    slices_rerouted: int
    floors_broken: int
    floors_before_gbps: float
    floors_after_gbps: float
    pairs_cut: int
    links_overfull: int
    protections_lost: int


class WhatIfView(ApiModel):
    """The effects on all slices concerned. Nothing is changed."""

    fail: list[str]
    drain: list[str]
    repair: list[str]
    floors_hold: bool
    """No slice would keep less of its floor than now."""
    planes: list[PlaneEffect]
    slices: list[SliceEffect]
    links_overfull: list[OverfullLink] = Field(default_factory=empty_list)
    """At most 100; `planes` has the full counts."""
