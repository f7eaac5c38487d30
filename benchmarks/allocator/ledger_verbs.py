"""Operations on a ledger that the service does not need; tests and benchmarks compose their scenarios from them.

Growing and shrinking are separate here, since each is easier to check than both at once (`preemption.resize`).
"""

from __future__ import annotations

from matrixresource.scheduler.changes import advance_reservation, resize
from matrixresource.scheduler.changes.minimal_move_layout import satisfies
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.placement_arithmetic import members_of, nodes_in
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.reservations import ReservedCapacity
from matrixresource.scheduler.placement.preferences import first_that_fits
from matrixresource.scheduler.placement.reserved_capacity import conflicts_with_reservations, hide_reservations

QUANTITIES = ("nodes", "npus_per_node", "spares", "cpus", "mem")


def hold(ledger: Ledger, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
    """Hold a free placement. Raises ValueError if the name or any part of the placement is held already."""
    if name in ledger.reservations:
        raise ValueError(f"{name}: held already, as a reservation")
    ledger.activate(name, request, place, now)


def grow(ledger: Ledger, name: str, request: PlacementRequest) -> Placement | None:
    """Add members, spares, sockets and GiB near the present ones, which stay. Returns None if that does not fit. Raises
    ValueError if the request is smaller.

    A part of a node grows on its node. Spares lost before are not replaced here (`refill` does that).
    """
    allocation = ledger.allocations[name]
    old = allocation.request
    if any(getattr(request, amount) < getattr(old, amount) for amount in QUANTITIES):
        raise ValueError(f"{name}: this is not growing")
    if conflicts_with_reservations(ledger, name, allocation.place, request.lease_end):
        return None
    spares = len(nodes_in(ledger.index, allocation.place.spares)) + request.spares - old.spares
    wanted = resize.changed(request, spares=spares)
    with hide_reservations(ledger, request):
        place = first_that_fits(ledger.shape, wanted, lambda firm: resize.grow(ledger, allocation.place, firm))
    return ledger.replace_placement(name, request, place)


def shrink(ledger: Ledger, name: str, request: PlacementRequest, keep: list[int]) -> Placement:
    """Shrink to the first members of `keep`, in rank order, and to the requested spares and pools.

    Raises ValueError if the request is larger, if `keep` names a node that is not a member, or too few, or if the
    result breaks a rule.
    """
    if any(getattr(request, amount) > getattr(ledger.allocations[name].request, amount) for amount in QUANTITIES):
        raise ValueError(f"{name}: this is not shrinking")
    place = resize.shrink(ledger, ledger.allocations[name].place, request, keep)
    if not satisfies(ledger, request, place, members_of(ledger.index, place)):
        raise ValueError(f"{name}: the members that stay break a rule")
    if conflicts_with_reservations(ledger, name, place, request.lease_end):
        raise ValueError(f"{name}: its nodes are promised before it would leave")
    ledger.replace_placement(name, request, place)
    return place


def resize_allocation(ledger: Ledger, name: str, request: PlacementRequest, keep: list[int]) -> Placement | None:
    """Grow and shrink different amounts at once, without preemption. Returns None if that does not fit."""
    return ledger.replace_placement(name, request, resize.resize(ledger, name, request, keep))


def move(ledger: Ledger, name: str, request: PlacementRequest) -> Placement | None:
    """Move to a placement for another request, as near to the present one as possible. Returns None if none fits."""
    return ledger.replace_placement(name, request, resize.move(ledger, name, request))


def cancel(ledger: Ledger, name: str) -> None:
    """End a reservation, and free what it still holds."""
    if ledger.reservations[name].holds:
        ledger.release(name)
    else:
        del ledger.reservations[name]
        ledger.reserved_capacity = ReservedCapacity(ledger.reservations.values())


def expire(ledger: Ledger, now: float) -> tuple[list[str], list[str]]:
    """Delete reservations past their end. Returns these, and the allocations past the end of their lease, which are
    kept."""
    ended = sorted(name for name, reservation in ledger.reservations.items() if reservation.end <= now)
    for name in ended:
        cancel(ledger, name)
    return ended, sorted(name for name, allocation in ledger.allocations.items() if allocation.request.lease_end <= now)


reserve, activate_due = advance_reservation.reserve, advance_reservation.activate_due
claim, extend = advance_reservation.claim, advance_reservation.extend


def rebuild_index(ledger: Ledger) -> FreeCapacityIndex:
    """The index rebuilt from the allocations and the states of nodes."""
    index = FreeCapacityIndex(ledger.shape)
    for node, up in enumerate(ledger.index.up):
        index.set_up(node, up)
    for allocation in ledger.allocations.values():
        for cabinet, mask in allocation.place.whole + allocation.place.spares:
            for offset in index.offsets(mask):
                index.allocate_dies(cabinet * ledger.shape.nodes + offset, ledger.shape.dies)
        for node, dies in allocation.place.parts:
            index.allocate_dies(node, dies)
        for node, amount in allocation.place.cpus:
            index.cpus[node] -= amount
        for node, amount in allocation.place.mem:
            index.mem[node] -= amount
    for node, dies in ledger.index.faulty_dies.items():
        index.set_faulty_dies(node, dies)
    return index


def has_room(index: FreeCapacityIndex, node: int, per: float) -> bool:
    """Whether a node is up and has `per` NPUs free (or a die, if less than one)."""
    return index.free[node] >= per if per >= 1 else index.free[node] >= 0 and index.dies[node] > 0


def allocations_on(ledger: Ledger, node: int) -> list[str]:
    """The allocations on a node, those of higher priority and then of more NPUs first."""
    allocations = ledger.allocations
    cabinet, offset = divmod(node, ledger.shape.nodes)

    def lies_there(place: Placement) -> bool:
        return any(c == cabinet and mask >> offset & 1 for c, mask in place.whole + place.spares) or any(
            n == node for n, _ in [*place.parts, *place.cpus, *place.mem]
        )

    hit = [name for name in sorted(ledger.tenants[cabinet]) if lies_there(allocations[name].place)]
    return sorted(hit, key=lambda name: (-allocations[name].request.priority, -allocations[name].request.npus))
