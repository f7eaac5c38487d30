"""What is asked and reported of things that have not happened. Rates are GB/s (10^9 bytes per second) each way."""

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
    """Parts of the fabric that are to fail, to be drained or to be repaired, all at once: links, switches, nodes,
    cabinets, sub-planes, planes. What is repaired is whole and in use."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"fail": ["sn0-l2p3-k11"]},)

    fail: Elements = Field(default_factory=empty_list)
    drain: Elements = Field(default_factory=empty_list)
    repair: Elements = Field(default_factory=empty_list)


class CutPair(ApiModel):
    """Two members without a path; `*` is everybody."""

    a: str
    b: str


class SliceEffect(ApiModel):
    """What would become of one slice. `cut` names at most 20 of `pairs_cut`."""

    slice: str
    project: str
    plane: Plane
    qos_class: QosClass
    floor_gbps_per_npu: float
    kept_before_gbps_per_npu: float
    kept_after_gbps_per_npu: float
    broken: bool
    """Less of its floor would be kept than now."""
    rerouted: bool
    pairs_cut: int = 0
    cut: list[CutPair] = Field(default_factory=empty_list)
    protection_lost: str = ""
    """Why its protection would be lost; empty where it would not, or is lost already."""


class OverfullLink(ApiModel):
    """A link whose floors would need more than it had."""

    link: str
    plane: Plane
    floors_gbps: float
    gbps: float
    share: float | None = None
    """Floors over capacity; unset for a dead link."""


class PlaneEffect(ApiModel):
    """One plane: ports that would change, and the floors of all its members' NPUs together."""

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
    """What would become of the slices that it concerns. Nothing was changed."""

    fail: list[str]
    drain: list[str]
    repair: list[str]
    floors_hold: bool
    """No slice would keep less of its floor than now."""
    planes: list[PlaneEffect]
    slices: list[SliceEffect]
    links_overfull: list[OverfullLink] = Field(default_factory=empty_list)
    """At most 100; `planes` has their numbers."""
