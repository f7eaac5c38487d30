"""compose(name, shape): the one allocation and the three slices that an instance takes.

Names derive from the owner, so asking twice finds the first: allocation `<instance>`, slices `<instance>-<plane>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrixcompute.contract import InstanceRequest, PlaneShare
from matrixresource.contract import AllocationRequest
from matrixresource.defragmentation_contract import INSTANCE_LABEL
from matrixresource.vocabulary.planes import Plane

OWNER_LABEL = INSTANCE_LABEL


@dataclass(frozen=True)
class SliceWish:
    """A slice to ask MatrixLink for, once the members are known."""

    name: str
    plane: Plane
    share: PlaneShare


@dataclass(frozen=True)
class Composition:
    """Everything one instance takes."""

    allocation: AllocationRequest
    slices: tuple[SliceWish, ...]


def slice_name(instance: str, plane: Plane) -> str:
    return f"{instance}-{plane.value}"


def compose(name: str, shape: InstanceRequest) -> Composition:
    """The allocation and the slices for `shape`. Pure."""
    labels = {**shape.labels, OWNER_LABEL: name}
    return Composition(
        AllocationRequest(
            project=shape.project, labels=labels, nodes=shape.nodes, spares=shape.spares, placement=shape.placement
        ),
        tuple(SliceWish(slice_name(name, plane), plane, shape.network.share(plane)) for plane in Plane),
    )
