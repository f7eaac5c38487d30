"""Operations on a ledger that the service does not need; tests and benchmarks compose their scenarios from them.

Growing and shrinking are separate here, as they are easier to judge than both at once (`preemption.resize`).
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

AMOUNTS = ("nodes", "npus_per_node", "spares", "cpus", "mem")


def hold(ledger: Ledger, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
    """Take a place that is free; ValueError when the name or any of the place is held already."""
    if name in ledger.reservations:
        raise ValueError(f"{name}: held already, as a reservation")
    ledger.activate(name, request, place, now)


def grow(ledger: Ledger, name: str, request: PlacementRequest) -> Placement | None:
    """Everything held stays; members, spares, sockets and GiB are added near it. ValueError when the spec is smaller.
    None when it does not fit.

    A part of a node grows on its node. Spares lost before are not asked for again here (`refill` does).
    """
    allocation = ledger.allocations[name]
    old = allocation.request
    if any(getattr(request, amount) < getattr(old, amount) for amount in AMOUNTS):
        raise ValueError(f"{name}: this is not growing")
    if conflicts_with_reservations(ledger, name, allocation.place, request.lease_end):
        return None
    spares = len(nodes_in(ledger.index, allocation.place.spares)) + request.spares - old.spares
    wanted = resize.changed(request, spares=spares)
    with hide_reservations(ledger, request):
        place = first_that_fits(ledger.shape, wanted, lambda firm: resize.grown(ledger, allocation.place, firm))
    return ledger.change(name, request, place)


def shrink(ledger: Ledger, name: str, request: PlacementRequest, keep: list[int]) -> Placement:
    """Of the members in `keep`, in the order of their ranks, the last go; spares and pools go down to what is asked.

    ValueError when the spec is larger, when `keep` names a node that is no member, or too few, or when what is left
    breaks a rule.
    """
    if any(getattr(request, amount) > getattr(ledger.allocations[name].request, amount) for amount in AMOUNTS):
        raise ValueError(f"{name}: this is not shrinking")
    place = resize.shrunk(ledger, ledger.allocations[name].place, request, keep)
    if not satisfies(ledger, request, place, members_of(ledger.index, place)):
        raise ValueError(f"{name}: the members that stay break a rule")
    if conflicts_with_reservations(ledger, name, place, request.lease_end):
        raise ValueError(f"{name}: its nodes are promised before it would leave")
    ledger.change(name, request, place)
    return place


def resized(ledger: Ledger, name: str, request: PlacementRequest, keep: list[int]) -> Placement | None:
    """More of one thing and less of another, at once; nobody is preempted."""
    return ledger.change(name, request, resize.resize(ledger, name, request, keep))


def move(ledger: Ledger, name: str, request: PlacementRequest) -> Placement | None:
    """A place under another spec, as near to the present one as can be."""
    return ledger.change(name, request, resize.move(ledger, name, request))


def cancel(ledger: Ledger, name: str) -> None:
    """A reservation ends, and what it still holds is free."""
    if ledger.reservations[name].holds:
        ledger.release(name)
    else:
        del ledger.reservations[name]
        ledger.promises = ReservedCapacity(ledger.reservations.values())


def expire(ledger: Ledger, now: float) -> tuple[list[str], list[str]]:
    """(reservations past their end, which are gone now; allocations past the end of their lease, which are not)."""
    ended = sorted(name for name, reservation in ledger.reservations.items() if reservation.end <= now)
    for name in ended:
        cancel(ledger, name)
    return ended, sorted(name for name, allocation in ledger.allocations.items() if allocation.request.lease_end <= now)


reserve, activate_due = advance_reservation.reserve, advance_reservation.activate_due
claim, extend = advance_reservation.claim, advance_reservation.extend


def rebuilt(ledger: Ledger) -> FreeCapacityIndex:
    """The index made anew from who holds what and which nodes are up."""
    index = FreeCapacityIndex(ledger.shape)
    for node, up in enumerate(ledger.index.up):
        index.set_up(node, up)
    for allocation in ledger.allocations.values():
        for cabinet, mask in allocation.place.whole + allocation.place.spares:
            for offset in index.offsets(mask):
                index.take(cabinet * ledger.shape.nodes + offset, ledger.shape.dies)
        for node, dies in allocation.place.parts:
            index.take(node, dies)
        for node, amount in allocation.place.cpus:
            index.cpus[node] -= amount
        for node, amount in allocation.place.mem:
            index.mem[node] -= amount
    for node, dies in ledger.index.faulty_dies.items():
        index.block(node, dies)
    return index


def has_room(index: FreeCapacityIndex, node: int, per: float) -> bool:
    """Whether a node is up and has so many NPUs free, or a die."""
    return index.free[node] >= per if per >= 1 else index.free[node] >= 0 and index.dies[node] > 0


def touched(ledger: Ledger, node: int) -> list[str]:
    """Allocations that have anything on a node, those of higher priority and of more NPUs first."""
    allocations = ledger.allocations
    cabinet, offset = divmod(node, ledger.shape.nodes)

    def lies_there(place: Placement) -> bool:
        return any(c == cabinet and mask >> offset & 1 for c, mask in place.whole + place.spares) or any(
            n == node for n, _ in [*place.parts, *place.cpus, *place.mem]
        )

    hit = [name for name in sorted(ledger.tenants[cabinet]) if lies_there(allocations[name].place)]
    return sorted(hit, key=lambda name: (-allocations[name].request.priority, -allocations[name].request.npus))
