"""compose(name, shape): the allocation of an instance; slices_over: its slices, once its members are known.

Names derive from the owner, so that repeated requests are idempotent: allocation `<instance>`, slices
`<instance>-<plane>`. The UB plane does not cross supernodes, so an instance over several has a UB slice in each:
`<instance>-ub` in that of its first member, `<instance>-ub3` in supernode sn3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcompute.contract import InstanceRequest, PlaneShare
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import INSTANCE_LABEL

OWNER_LABEL = INSTANCE_LABEL


@dataclass(frozen=True)
class SliceSpec:
    """A slice to request from MatrixLink."""

    name: str
    plane: Plane
    share: PlaneShare
    members: tuple[str, ...]


PLACEMENT_FIELDS = ("placement", "affinity", "anti_affinity")
"""The fields of a shape that determine its placement: if one changes, the instance moves; others change in place."""


def slices_over(name: str, shape: InstanceRequest, nodes: Sequence[str]) -> tuple[SliceSpec, ...]:
    """The slices that connect these members. The UB slice in the first one's supernode has no suffix. Pure."""
    found = []
    for plane in Plane:
        groups: dict[str, list[str]] = {"": list(nodes)}
        if plane == Plane.UB and nodes:
            home = NodeName(nodes[0]).supernode
            groups = {"": []}
            for node in nodes:
                supernode = NodeName(node).supernode
                suffix = "" if supernode == home else supernode.removeprefix("sn")
                groups.setdefault(suffix, []).append(node)
        for suffix, members in groups.items():
            slice_name = f"{name}-{plane.value}{suffix}"
            found.append(SliceSpec(slice_name, plane, shape.network.share(plane), tuple(members)))
    return tuple(found)


def placement_changed(shape: InstanceRequest, current: InstanceRequest) -> bool:
    """Whether the two shapes differ in a placement field."""
    return any(getattr(shape, field) != getattr(current, field) for field in PLACEMENT_FIELDS)


def limit_to_allocated(
    shape: InstanceRequest, applied: InstanceRequest | None, allocation: AllocationView | None
) -> InstanceRequest:
    """The shape with the present number of members, if some are missing because there was no node for them: the last
    active shape, `applied`, asks for the same number. A separate workflow restores those."""
    if allocation is None or applied is None or applied.nodes != shape.nodes:
        return shape
    if not shape.floor <= allocation.nodes < shape.nodes:
        return shape
    return shape.model_copy(update={"nodes": allocation.nodes, "spares": min(shape.spares, allocation.spares)})


def compose(name: str, shape: InstanceRequest) -> AllocationRequest:
    """The allocation for `shape`. Pure."""
    return AllocationRequest(
        project=shape.project,
        labels={**shape.labels, OWNER_LABEL: name},
        nodes=shape.nodes,
        spares=shape.spares,
        placement=shape.placement,
        affinity=shape.affinity.affinity() if shape.affinity else None,
        anti_affinity=shape.anti_affinity.affinity() if shape.anti_affinity else None,
        priority=shape.priority,
        preemption=shape.preemption,
        lease_s=shape.lease_s,
    )
