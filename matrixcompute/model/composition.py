"""compose(name, shape): the one allocation and the three slices that an instance takes.

Names derive from the owner, so asking twice finds the first: allocation `<instance>`, slices `<instance>-<plane>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import name_of
from matrixcompute.contract import InstanceRequest, PlaneShare, SliceSummary
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.defragmentations import INSTANCE_LABEL

OWNER_LABEL = INSTANCE_LABEL


@dataclass(frozen=True)
class SliceSpec:
    """A slice to ask MatrixLink for, once the members are known."""

    name: str
    plane: Plane
    share: PlaneShare


@dataclass(frozen=True)
class Composition:
    """Everything one instance takes."""

    allocation: AllocationRequest
    slices: tuple[SliceSpec, ...]


PLACEMENT_FIELDS = ("placement", "affinity", "anti_affinity")
"""What of a shape says where it lies: changed, the instance moves; anything else changes in place."""


def slice_name(instance: str, plane: Plane) -> str:
    return f"{instance}-{plane.value}"


def own_slices(instance: str, slices: Iterable[SliceSummary]) -> tuple[SliceSummary, ...]:
    """Those of its slices that an instance takes itself; somebody may have given it more."""
    own = {name_of(slice_name(instance, plane)) for plane in Plane}
    return tuple(each for each in slices if each.name in own)


def placement_changed(shape: InstanceRequest, current: InstanceRequest) -> bool:
    """Whether the one may lie elsewhere than the other."""
    return any(getattr(shape, field) != getattr(current, field) for field in PLACEMENT_FIELDS)


def compose(name: str, shape: InstanceRequest) -> Composition:
    """The allocation and the slices for `shape`. Pure."""
    labels = {**shape.labels, OWNER_LABEL: name}
    return Composition(
        AllocationRequest(
            project=shape.project,
            labels=labels,
            nodes=shape.nodes,
            spares=shape.spares,
            placement=shape.placement,
            affinity=shape.affinity.affinity() if shape.affinity else None,
            anti_affinity=shape.anti_affinity.affinity() if shape.anti_affinity else None,
            priority=shape.priority,
            preemption=shape.preemption,
            lease_s=shape.lease_s,
        ),
        tuple(SliceSpec(slice_name(name, plane), plane, shape.network.share(plane)) for plane in Plane),
    )
