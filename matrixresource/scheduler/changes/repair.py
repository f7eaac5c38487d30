"""After the loss of a node: what of a place is left, and who else may join its members."""

from __future__ import annotations

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.affinity import AffinityFilter


def touches(ledger: LedgerState, name: str, node: int) -> bool:
    place = ledger.allocations[name].place
    cabinet, offset = divmod(node, ledger.shape.nodes)
    return any(c == cabinet and mask >> offset & 1 for c, mask in place.whole + place.spares) or any(
        n == node for n, _ in [*place.parts, *place.cpus, *place.mem]
    )


def without(index: FreeCapacityIndex, place: Placement, node: int) -> Placement:
    """What a place has on other nodes."""
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


def keeps_rules(ledger: LedgerState, request: PlacementRequest, members: set[int], node: int) -> bool:
    """Whether a node may join the members, by its domain, spread, anti-affinity and affinity."""
    sizes = {"node": 1, "cabinet": ledger.shape.nodes, "supernode": ledger.shape.of_supernode}
    if (
        request.required_domain
        and members
        and next(iter(members)) // sizes[request.required_domain] != node // sizes[request.required_domain]
    ):
        return False
    if request.spread is not None and request.spread.required:
        size = sizes[request.spread.over]
        if sum(member // size == node // size for member in members) >= request.spread.most:
            return False
    return AffinityFilter(ledger, request)(node)
