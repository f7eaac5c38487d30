"""Memory of nodes that are named: there is nothing to choose, only whether each of them has so much left."""

from __future__ import annotations

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def memory_short(
    index: FreeCapacityIndex, request: PlacementRequest, held: Placement | None = None
) -> dict[int, tuple[int, int]]:
    """By node, of those that cannot give what is asked: (GiB asked, GiB it could give).

    What is `held` is taken from the index already and stays; a node that is closed to newcomers gives no more than it.
    """
    mine = {} if held is None else dict(held.mem)
    found: dict[int, tuple[int, int]] = {}
    for node, amount in request.mem_by_node:
        had = mine.get(node, 0)
        there = had + index.mem[node] if index.up[node] else had
        if amount > there:
            found[node] = amount, there
    return found


def place_memory(index: FreeCapacityIndex, request: PlacementRequest, place: Placement) -> bool:
    """What is asked of each node, added to a place that has none yet; False, and nothing added, where one is short."""
    if memory_short(index, request):
        return False
    place.mem = list(request.mem_by_node)
    return True


def resized_memory(index: FreeCapacityIndex, request: PlacementRequest, held: Placement) -> Placement | None:
    """The place in which an allocation of named memory has what is asked now; None where a node is short."""
    return None if memory_short(index, request, held) else Placement(mem=list(request.mem_by_node))


def kept_memory(request: PlacementRequest, held: Placement) -> Placement:
    """What stays of a place before anything is added."""
    mine = dict(held.mem)
    return Placement(mem=[(node, min(mine[node], amount)) for node, amount in request.mem_by_node if node in mine])
