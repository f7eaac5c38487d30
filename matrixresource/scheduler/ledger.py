"""Who holds what: requests in, places out, all or nothing; failures and their repair.

The index is kept in step with every change. Times are seconds on the caller's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from matrixresource.scheduler.changes import advance_reservation, preemption, repair
from matrixresource.scheduler.changes import resize as resizing
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.placement import preferences
from matrixresource.scheduler.placement.best_fit import POLICIES, BestFit, Policy
from matrixresource.scheduler.placement.reserved_capacity import Reservation, ReservedCapacity, hide_reservations


@dataclass(slots=True, init=False)
class HeldAllocation:
    """One allocation."""

    request: PlacementRequest
    place: Placement
    since: float

    def __init__(self, request: PlacementRequest, place: Placement, since: float) -> None:
        self.request, self.place, self.since = request, place, since


class Ledger:
    """The verbs over one machine."""

    def __init__(self, shape: ClusterShape, policy: Policy = POLICIES["best"]) -> None:
        self.shape = shape
        self.index = FreeCapacityIndex(shape)
        self.chooser = BestFit(self.index, policy)
        self.allocations: dict[str, HeldAllocation] = {}
        self.reservations: dict[str, Reservation] = {}
        self.promises = ReservedCapacity()  # those of them that wait for their start
        self.tenants: list[set[str]] = [set() for _ in range(shape.all_cabinets)]  # who has anything in a cabinet

    # ---- verbs

    def allocate(self, name: str, request: PlacementRequest, now: float) -> tuple[Placement | None, list[str]]:
        """The place taken, or None; and whom it put out of theirs."""
        if name in self.allocations or name in self.reservations:
            raise ValueError(f"{name}: held already")
        self.chooser.observe_size(request)
        place = self.choose(request)
        evicted: list[str] = []
        if place is None and request.preempts:
            evicted = preemption.victims(self, request, now) or []
            for other in evicted:
                self.release(other)
            place = self.choose(request) if evicted else None
        if place is not None:
            self.take(name, place, request.lease_end)  # chosen on the index as it is, so it is free
            self.allocations[name] = HeldAllocation(request, place, now)
        return place, evicted

    def choose(self, request: PlacementRequest) -> Placement | None:
        """A place that keeps every rule of the request on what is free now, or None."""
        if self.promises.waiting or request.excluded_nodes:
            with hide_reservations(self, request):
                return self.choose_unreserved(request)
        if not request.unconstrained:
            return self.choose_unreserved(request)
        if request.nodes % request.supernode_block:
            return None  # no number of whole blocks
        if request.nodes == 1 and request.npus_per_node < self.shape.npus:
            return self.chooser.part(request)
        return self.chooser.gang(request)

    def choose_unreserved(self, request: PlacementRequest) -> Placement | None:
        """The same on the index as it stands, where what the request must not have is withheld already."""
        if request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
            return None  # no number of whole blocks
        if not request.unconstrained:
            return preferences.choose(self, request)
        if request.nodes == 1 and request.npus_per_node < self.shape.npus:
            return self.chooser.part(request)
        return self.chooser.gang(request)

    def hold(self, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
        """Take a place that is free; ValueError when the name or any of the place is held already."""
        if name in self.reservations:
            raise ValueError(f"{name}: held already, as a reservation")
        self.activate(name, request, place, now)

    def activate(self, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
        """The same for a reservation's own name."""
        if name in self.allocations or not self.index.has(place):
            raise ValueError(f"{name}: held already, or its place is not free")
        self.take(name, place, request.lease_end)
        self.allocations[name] = HeldAllocation(request, place, now)

    def release(self, name: str) -> None:
        self.give(name, self.allocations.pop(name).place)
        if self.reservations:
            self.reservations.pop(name, None)

    def grow(self, name: str, request: PlacementRequest) -> Placement | None:
        """The place with more beside what is held, as `resizing.grow` says; None when it does not fit."""
        return self._changed(name, request, resizing.grow(self, name, request))

    def shrink(self, name: str, request: PlacementRequest, keep: list[int]) -> Placement:
        """The place with less: of the members in `keep`, in the order of their ranks, the last go."""
        place = resizing.shrink(self, name, request, keep)
        self._changed(name, request, place)
        return place

    def resize(self, name: str, request: PlacementRequest, keep: list[int]) -> Placement | None:
        """More of one thing and less of another, at once."""
        return self._changed(name, request, resizing.resize(self, name, request, keep))

    def replace(self, name: str, node: int, avoid: frozenset[int] = frozenset()) -> Placement | None:
        """The place with another node for this one; None when there is none."""
        return self._changed(name, self.allocations[name].request, resizing.replace(self, name, node, avoid))

    def move(self, name: str, request: PlacementRequest) -> Placement | None:
        """A place under another wish, as near to the present one as can be."""
        return self._changed(name, request, resizing.move(self, name, request))

    def refill(self, name: str) -> Placement:
        """The place with missing spares, as many as can be had."""
        place = resizing.refill(self, name)
        self._changed(name, self.allocations[name].request, place)
        return place

    def _changed(self, name: str, request: PlacementRequest, place: Placement | None) -> Placement | None:
        if place is None:
            return None
        allocation = self.allocations[name]
        self.give(name, allocation.place)
        if not self.index.has(place):
            self.take(name, allocation.place, allocation.request.lease_end)
            raise ValueError(f"{name}: its new place is not free")
        self.take(name, place, request.lease_end)
        allocation.request, allocation.place = request, place
        return place

    def extend(self, name: str, end: float) -> bool:
        """Another end of a lease; False when what it holds is promised to somebody before that."""
        return advance_reservation.extend(self, name, end)

    # ---- reservations: see `reserving`

    def reserve(self, name: str, request: PlacementRequest, start: float, end: float) -> Placement | None:
        return advance_reservation.reserve(self, name, request, start, end)

    def activate_due(self, now: float) -> tuple[dict[str, Placement], list[str]]:
        return advance_reservation.activate_due(self, now)

    def claim(self, name: str, allocation: str, request: PlacementRequest | None, now: float) -> Placement | None:
        return advance_reservation.claim(self, name, allocation, request, now)

    def cancel(self, name: str) -> None:
        advance_reservation.cancel(self, name)

    def expire(self, now: float) -> tuple[list[str], list[str]]:
        return advance_reservation.expire(self, now)

    # ---- nodes

    def set_up(self, node: int, up: bool) -> None:
        """Open or close a node for newcomers; nobody is moved."""
        self.index.set_up(node, up)

    def touched(self, node: int) -> list[str]:
        """Allocations that have anything on a node, those of higher priority and of more NPUs first."""
        hit = [name for name in sorted(self.tenants[node // self.shape.nodes]) if repair.touches(self, name, node)]
        return sorted(
            hit, key=lambda name: (-self.allocations[name].request.priority, -self.allocations[name].request.npus)
        )

    def fail_over(self, name: str, node: int, avoid: frozenset[int] = frozenset()) -> Placement | None:
        """The place with another node for a lost one, by the rules of the request, else with its domain and spread as
        preferences; None when there is none."""
        return repair.fail_over(self, name, node, avoid)

    # ---- the index in step

    def take(self, name: str, place: Placement, end: float = inf) -> None:
        index, tenants, nodes = self.index, self.tenants, self.shape.nodes
        ends = self.chooser.cabinet_ends
        finite = end != inf
        for cabinet, mask in place.whole:
            index.take_whole(cabinet, mask)
            tenants[cabinet].add(name)
            if finite and ends[cabinet] < end:
                ends[cabinet] = end
        for node, dies in place.parts:
            index.take(node, dies)
            cabinet = node // nodes
            tenants[cabinet].add(name)
            if finite:
                node_ends = self.chooser.node_ends
                if node_ends[node] < end:
                    node_ends[node] = end
                if ends[cabinet] < end:
                    ends[cabinet] = end
        for cabinet, mask in place.spares:
            index.take_whole(cabinet, mask)
            tenants[cabinet].add(name)
        if place.cpus or place.mem:
            self._pool(name, place, -1)

    def give(self, name: str, place: Placement) -> None:
        index, tenants, nodes, npus = self.index, self.tenants, self.shape.nodes, self.shape.npus
        ends = self.chooser.cabinet_ends
        if place.cpus or place.mem:
            self._pool(name, place, 1)
        for cabinet, mask in place.whole + place.spares if place.spares else place.whole:
            index.give_whole(cabinet, mask)
            here = tenants[cabinet]
            here.discard(name)
            if not here:
                ends[cabinet] = 0.0
        for node, dies in place.parts:
            index.give(node, dies)
            cabinet = node // nodes
            here = tenants[cabinet]
            here.discard(name)
            if index.free[node] == npus:
                self.chooser.node_ends[node] = 0.0
            if not here:
                ends[cabinet] = 0.0

    def _pool(self, name: str, place: Placement, sign: int) -> None:
        for amounts, left in ((place.cpus, self.index.cpus), (place.mem, self.index.mem)):
            for node, amount in amounts:
                left[node] += sign * amount
                if sign < 0:
                    self.tenants[node // self.shape.nodes].add(name)
                else:
                    self.tenants[node // self.shape.nodes].discard(name)

    def rebuilt(self) -> FreeCapacityIndex:
        """The index made anew from who holds what and which nodes are up."""
        index = FreeCapacityIndex(self.shape)
        for node, up in enumerate(self.index.up):
            index.set_up(node, up)
        for allocation in self.allocations.values():
            for cabinet, mask in allocation.place.whole + allocation.place.spares:
                for offset in index.offsets(mask):
                    index.take(cabinet * self.shape.nodes + offset, self.shape.dies)
            for node, dies in allocation.place.parts:
                index.take(node, dies)
            for node, amount in allocation.place.cpus:
                index.cpus[node] -= amount
            for node, amount in allocation.place.mem:
                index.mem[node] -= amount
        for node, dies in self.index.faulty_dies.items():
            index.block(node, dies)
        return index
