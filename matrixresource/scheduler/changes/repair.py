"""After the loss of a node: what is left of a placement, and which nodes may join its members."""

from __future__ import annotations

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.affinity import AffinityFilter


def without_node(index: FreeCapacityIndex, place: Placement, node: int) -> Placement:
    """What a placement has on other nodes."""
    cabinet, offset = divmod(node, index.nodes)
    left = ~(1 << offset)
    kept = Placement(
        [(c, mask & left if c == cabinet else mask) for c, mask in place.whole],
        [(n, dies) for n, dies in place.parts if n != node],
        [(c, mask & left if c == cabinet else mask) for c, mask in place.spares],
        [(n, amount) for n, amount in place.cpus if n != node],
        [(n, amount) for n, amount in place.mem if n != node],
    )
    kept.whole = [(c, mask) for c, mask in kept.whole if mask]
    kept.spares = [(c, mask) for c, mask in kept.spares if mask]
    return kept


def satisfies_constraints(ledger: LedgerState, request: PlacementRequest, members: set[int], node: int) -> bool:
    """Whether a node may join the members, given domain, spread, anti-affinity and affinity."""
    size = ledger.shape.size_of(request.required_domain)
    if members and next(iter(members)) // size != node // size:
        return False
    if request.spread is not None and request.spread.required:
        size = ledger.shape.size_of(request.spread.over)
        if sum(member // size == node // size for member in members) >= request.spread.most:
            return False
    return AffinityFilter(ledger, request)(node)
