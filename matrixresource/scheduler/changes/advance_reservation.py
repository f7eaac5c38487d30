"""Reservations in time: a placement chosen from what will be free, protected from allocations that would still be
there, then held.

A reservation waits until `activate_due` finds that its start has come. From then on it is held under its own name, and
`claim` hands it over, in full or in pieces; what was claimed does not return to the reservation. Leases count as
declared: whoever is due to leave by the start is assumed to be gone by then. Nobody is preempted: whoever overstays
stays, and the reservation is placed again or reported as waiting; likewise one that has lost nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from matrixresource.scheduler.changes.minimal_move_layout import satisfies
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.placement_arithmetic import members_of, nodes_in, subtract, used_nodes
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.reservations import Reservation, ReservedCapacity
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.choose import choose, choose_unreserved
from matrixresource.scheduler.placement.reserved_capacity import conflicts_with_reservations, hide_reservations

# ---- ahead of time


def reserve(ledger: LedgerState, name: str, request: PlacementRequest, start: float, end: float) -> Placement | None:
    """Promise a placement from `start` to `end`, or return None. ValueError if the name is in use or `end` is not after
    `start`."""
    if name in ledger.reservations or name in ledger.allocations or start >= end:
        raise ValueError(f"{name}: the name is in use, or the end is not after the start")
    request = replace(request, lease_end=end)
    place = place_between(ledger, request, start)
    if place is not None:
        add_reservation(ledger, name, Reservation(request, start, end, place))
    return place


def add_reservation(ledger: LedgerState, name: str, reservation: Reservation) -> None:
    """Enter a stored reservation as it was."""
    ledger.reservations[name] = reservation
    ledger.reserved_capacity = ReservedCapacity(ledger.reservations.values())


def place_between(ledger: LedgerState, request: PlacementRequest, start: float) -> Placement | None:
    """A placement on what will be free from `start` to the end of the request; nothing is promised yet."""
    with departures(ledger) as timeline:
        timeline.advance_to(start)
        with hide_reservations(ledger, request, start):
            return choose_unreserved(ledger, request)


def earliest_start(ledger: LedgerState, request: PlacementRequest, now: float, least: float) -> float | None:
    """The first moment from `least` on at which it fits for its whole duration, given leases and reservations."""
    duration = request.lease_end - now
    ends = {allocation.request.lease_end for allocation in ledger.allocations.values()} | {
        r.end for r in ledger.reserved_capacity.waiting
    }
    with departures(ledger) as timeline:
        for start in sorted({least} | {end for end in ends if least < end < inf}):
            timeline.advance_to(start)
            shifted = replace(request, lease_end=start + duration)
            with hide_reservations(ledger, shifted, start):
                if choose_unreserved(ledger, shifted) is not None:
                    return start
    return None


@contextmanager
def ignoring_reservations(ledger: LedgerState) -> Iterator[None]:
    """Pretend that nothing is promised."""
    kept, ledger.reserved_capacity = ledger.reserved_capacity, ReservedCapacity()
    try:
        yield
    finally:
        ledger.reserved_capacity = kept


class DepartureTimeline:
    """Releases tenants in the order in which they leave, as time advances."""

    def __init__(self, ledger: LedgerState) -> None:
        self.ledger = ledger
        self.departed: list[str] = []
        reported = (
            (allocation.request.lease_end, name)
            for name, allocation in ledger.allocations.items()
            if allocation.request.lease_end != inf
        )
        self.waiting = sorted(reported, reverse=True)

    def advance_to(self, moment: float) -> None:
        while self.waiting and self.waiting[-1][0] <= moment:
            _, name = self.waiting.pop()
            self.ledger.remove_usage(name, self.ledger.allocations[name].place)
            self.departed.append(name)


@contextmanager
def departures(ledger: LedgerState) -> Iterator[DepartureTimeline]:
    """Restores everything at the end, including hints about leaving times."""
    ends = list(ledger.chooser.node_ends), list(ledger.chooser.cabinet_ends)
    found = DepartureTimeline(ledger)
    try:
        yield found
    finally:
        for name in found.departed:
            ledger.add_usage(name, ledger.allocations[name].place, ledger.allocations[name].request.lease_end)
        ledger.chooser.node_ends, ledger.chooser.cabinet_ends = ends


# ---- as time continues


def activate_due(ledger: LedgerState, now: float) -> tuple[dict[str, Placement], list[str]]:
    """(placements now held by reservations whose start has come, names of those for which there is none now)."""
    current: dict[str, Placement] = {}
    failed: list[str] = []
    waiting = [name for name, r in ledger.reservations.items() if not r.holds and r.start <= now < r.end]
    for name in sorted(waiting, key=lambda name: (ledger.reservations[name].start, name)):
        reservation = ledger.reservations[name]
        request, place = reservation.request, reservation.place
        reservation.holds = True
        ledger.reserved_capacity = ReservedCapacity(ledger.reservations.values())
        is_available = _is_complete(ledger, request, place) and ledger.index.is_allocatable(place)
        chosen = place if is_available else choose(ledger, request)
        if chosen is None:
            reservation.holds = False
            ledger.reserved_capacity = ReservedCapacity(ledger.reservations.values())
            failed.append(name)
            continue
        ledger.activate(name, request, chosen, now)
        current[name] = reservation.place = chosen
    return current, failed


def _is_complete(ledger: LedgerState, request: PlacementRequest, place: Placement) -> bool:
    """Whether a promised placement is still complete: nodes may have been closed since."""
    index = ledger.index
    counted = len(members_of(index, place)), len(nodes_in(index, place.spares))
    pooled = sum(amount for _, amount in place.cpus), sum(amount for _, amount in place.mem)
    return (*counted, *pooled) == (request.nodes, request.spares, request.cpus, request.mem)


def claim(
    ledger: LedgerState, name: str, allocation: str, request: PlacementRequest | None, now: float
) -> Placement | None:
    """Hand the held reservation's placement to an allocation, or the part of it that the allocation's request fits;
    None if none.

    The rest stays with the reservation. ValueError if it does not hold its placement, or the allocation's name is in
    use.
    """
    reservation = ledger.reservations[name]
    if not reservation.holds or allocation in ledger.allocations or allocation in ledger.reservations:
        raise ValueError(f"{name} is not held yet, or the name {allocation} is in use")
    current = ledger.allocations[name]
    request = request or current.request
    ledger.remove_usage(name, current.place)
    with with_only(ledger.index, current.place), hide_reservations(ledger, request):
        found = current.place if request is current.request else choose_unreserved(ledger, request)
    if found is None or conflicts_with_reservations(ledger, name, found, request.lease_end):
        ledger.add_usage(name, current.place, current.request.lease_end)
        return None
    rest = subtract(ledger.index, current.place, found)
    if used_nodes(ledger.index, rest):
        current.request, current.place = remaining_request(ledger, current.request, rest), rest
        reservation.request, reservation.place = current.request, rest
        ledger.add_usage(name, rest, current.request.lease_end)
    else:
        del ledger.allocations[name], ledger.reservations[name]
    ledger.activate(allocation, request, found, now)
    return found


def extend(ledger: LedgerState, name: str, end: float) -> bool:
    """Extend a lease to `end`; False if what it holds is promised to a reservation before that."""
    allocation = ledger.allocations[name]
    if conflicts_with_reservations(ledger, name, allocation.place, end):
        return False
    ledger.remove_usage(name, allocation.place)
    allocation.request = replace(allocation.request, lease_end=end)
    ledger.add_usage(name, allocation.place, end)
    return True


# ---- parts of a place


@contextmanager
def with_only(index: FreeCapacityIndex, place: Placement) -> Iterator[None]:
    """Make a placement the only free capacity for a while."""
    placed = dict.fromkeys(nodes_in(index, place.whole + place.spares), index.shape.dies)
    for node, dies in place.parts:
        placed[node] = placed.get(node, 0) | dies
    hidden: list[tuple[int, int]] = []
    started = {
        node
        for sets in (index.nodes_by_free_npus, index.nodes_with_free_die)
        for bits in sets
        for node in _bit_positions(bits)
    }
    whole = {c * index.nodes + offset for c, mask in enumerate(index.whole) for offset in index.offsets(mask)}
    for node in started | whole:
        dies = index.dies[node] & ~placed.get(node, 0)
        if dies:
            index.allocate_dies(node, dies)
            hidden.append((node, dies))
    cpus, mem = index.cpus, index.mem
    index.cpus, index.mem = [0] * len(cpus), [0] * len(mem)
    for node, amount in place.cpus:
        index.cpus[node] += amount
    for node, amount in place.mem:
        index.mem[node] += amount
    try:
        yield
    finally:
        index.cpus, index.mem = cpus, mem
        for node, dies in hidden:
            index.release_dies(node, dies)


def _bit_positions(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def remaining_request(ledger: LedgerState, request: PlacementRequest, rest: Placement) -> PlacementRequest:
    """The request that describes a remainder, used for repairs; one for no nodes if its members differ in size."""
    index = ledger.index
    sizes = {dies.bit_count() / 2 for _, dies in rest.parts} | ({float(index.npus)} if rest.whole else set())
    npus_per_node = sizes.pop() if len(sizes) == 1 else request.npus_per_node
    reported = replace(
        request,
        nodes=0 if sizes else len(members_of(index, rest)),
        npus_per_node=npus_per_node if npus_per_node < 1 else int(npus_per_node),
        spares=len(nodes_in(index, rest.spares)),
        cpus=sum(amount for _, amount in rest.cpus),
        mem=sum(amount for _, amount in rest.mem),
        mem_by_node=tuple(rest.mem) if request.mem_by_node else (),
    )
    return (
        reported
        if satisfies(ledger, reported, rest)
        else replace(reported, supernode_block=1, cabinet_block=1, affinity=None, anti_affinity=None)
    )
