"""LedgerState: who holds what of one machine, with the index, each cabinet's tenants and the chooser's statistics."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from matrixresource.scheduler.model.best_fit import POLICIES, BestFit, Policy
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.reservations import Reservation, ReservedCapacity


@dataclass(slots=True, init=False)
class HeldAllocation:
    """One allocation."""

    request: PlacementRequest
    place: Placement
    since: float

    def __init__(self, request: PlacementRequest, place: Placement, since: float) -> None:
        self.request, self.place, self.since = request, place, since


class LedgerState:
    """Allocations and reservations, with the changes of both that keep all of it consistent."""

    def __init__(self, shape: ClusterShape, policy: Policy = POLICIES["best"]) -> None:
        self.shape = shape
        self.index = FreeCapacityIndex(shape)
        self.chooser = BestFit(self.index, policy)
        self.allocations: dict[str, HeldAllocation] = {}
        self.reservations: dict[str, Reservation] = {}
        self.promises = ReservedCapacity()  # those of them that wait for their start
        self.tenants: list[set[str]] = [
            set() for _ in range(shape.all_cabinets)
        ]  # by cabinet: who holds anything there

    def fill_copy(self, made: LedgerState) -> None:
        """Fill another state as an independent copy. Requests are immutable and shared."""
        made.index = self.index.copy()
        made.chooser = self.chooser.copy(made.index)
        made.allocations = {
            name: HeldAllocation(each.request, each.place.copy(), each.since) for name, each in self.allocations.items()
        }
        made.reservations = {
            name: Reservation(each.request, each.start, each.end, each.place.copy(), each.holds)
            for name, each in self.reservations.items()
        }
        made.promises = ReservedCapacity(made.reservations.values() if self.promises else ())
        made.tenants = [set(names) for names in self.tenants]

    def activate(self, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
        """Take a placement that is free. ValueError if the name is in use or any of the placement is held."""
        if name in self.allocations or not self.index.has(place):
            raise ValueError(f"{name}: the name is in use, or the placement is not free")
        self.take(name, place, request.lease_end)
        self.allocations[name] = HeldAllocation(request, place, now)

    def release(self, name: str) -> None:
        self.give(name, self.allocations.pop(name).place)
        if self.reservations:
            self.reservations.pop(name, None)

    def change(self, name: str, request: PlacementRequest, place: Placement | None) -> Placement | None:
        """Give an allocation another placement and request. None, and no change, if `place` is None."""
        if place is None:
            return None
        allocation = self.allocations[name]
        self.give(name, allocation.place)
        if not self.index.has(place):
            self.take(name, allocation.place, allocation.request.lease_end)
            raise ValueError(f"{name}: its new placement is not free")
        self.take(name, place, request.lease_end)
        allocation.request, allocation.place = request, place
        return place

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
