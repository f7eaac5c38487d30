"""Memory of named nodes: there is nothing to choose, only to check that each of them has enough left."""

from __future__ import annotations

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def memory_shortages(
    index: FreeCapacityIndex, request: PlacementRequest, current: Placement | None = None
) -> dict[int, tuple[int, int]]:
    """By node, for those that cannot give what is requested: (GiB requested, GiB available).

    What is `current` was taken from the index and stays; a node that is closed gives no more than that.
    """
    current_gib = {} if current is None else dict(current.mem)
    found: dict[int, tuple[int, int]] = {}
    for node, amount in request.mem_by_node:
        own_gib = current_gib.get(node, 0)
        available = own_gib + index.mem[node] if index.up[node] else own_gib
        if amount > available:
            found[node] = amount, available
    return found


def place_memory(index: FreeCapacityIndex, request: PlacementRequest, place: Placement) -> bool:
    """Add the requested memory of each node to a placement that has none yet; False, and nothing added, if one is
    short."""
    if memory_shortages(index, request):
        return False
    place.mem = list(request.mem_by_node)
    return True


def resized_memory(index: FreeCapacityIndex, request: PlacementRequest, current: Placement) -> Placement | None:
    """The placement in which an allocation of named memory has what is requested now; None if a node is short."""
    return None if memory_shortages(index, request, current) else Placement(mem=list(request.mem_by_node))


def kept_memory(request: PlacementRequest, current: Placement) -> Placement:
    """What stays of a placement before anything is added."""
    current_gib = dict(current.mem)
    return Placement(
        mem=[(node, min(current_gib[node], amount)) for node, amount in request.mem_by_node if node in current_gib]
    )
