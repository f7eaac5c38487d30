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
        self.reserved_capacity = ReservedCapacity()  # those of them that wait for their start
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
        made.reserved_capacity = ReservedCapacity(made.reservations.values() if self.reserved_capacity else ())
        made.tenants = [set(names) for names in self.tenants]

    def activate(self, name: str, request: PlacementRequest, place: Placement, now: float) -> None:
        """Take a placement that is free. ValueError if the name is in use or any of the placement is held."""
        if name in self.allocations or not self.index.is_unallocated(place):
            raise ValueError(f"{name}: the name is in use, or the placement is not free")
        self.add_usage(name, place, request.lease_end)
        self.allocations[name] = HeldAllocation(request, place, now)

    def release(self, name: str) -> None:
        self.remove_usage(name, self.allocations.pop(name).place)
        if self.reservations:
            self.reservations.pop(name, None)

    def replace_placement(self, name: str, request: PlacementRequest, place: Placement | None) -> Placement | None:
        """Give an allocation another placement and request. None, and no change, if `place` is None."""
        if place is None:
            return None
        allocation = self.allocations[name]
        self.remove_usage(name, allocation.place)
        if not self.index.is_unallocated(place):
            self.add_usage(name, allocation.place, allocation.request.lease_end)
            raise ValueError(f"{name}: its new placement is not free")
        self.add_usage(name, place, request.lease_end)
        allocation.request, allocation.place = request, place
        return place

    def add_usage(self, name: str, place: Placement, end: float = inf) -> None:
        index, tenants, nodes = self.index, self.tenants, self.shape.nodes
        ends = self.chooser.cabinet_ends
        finite = end != inf
        for cabinet, mask in place.whole:
            index.allocate_nodes(cabinet, mask)
            tenants[cabinet].add(name)
            if finite and ends[cabinet] < end:
                ends[cabinet] = end
        for node, dies in place.parts:
            index.allocate_dies(node, dies)
            cabinet = node // nodes
            tenants[cabinet].add(name)
            if finite:
                node_ends = self.chooser.node_ends
                if node_ends[node] < end:
                    node_ends[node] = end
                if ends[cabinet] < end:
                    ends[cabinet] = end
        for cabinet, mask in place.spares:
            index.allocate_nodes(cabinet, mask)
            tenants[cabinet].add(name)
        if place.cpus or place.mem:
            self._adjust_pools(name, place, -1)

    def remove_usage(self, name: str, place: Placement) -> None:
        index, tenants, nodes, npus = self.index, self.tenants, self.shape.nodes, self.shape.npus
        ends = self.chooser.cabinet_ends
        if place.cpus or place.mem:
            self._adjust_pools(name, place, 1)
        for cabinet, mask in place.whole + place.spares if place.spares else place.whole:
            index.release_nodes(cabinet, mask)
            names = tenants[cabinet]
            names.discard(name)
            if not names:
                ends[cabinet] = 0.0
        for node, dies in place.parts:
            index.release_dies(node, dies)
            cabinet = node // nodes
            names = tenants[cabinet]
            names.discard(name)
            if index.free[node] == npus:
                self.chooser.node_ends[node] = 0.0
            if not names:
                ends[cabinet] = 0.0

    def _adjust_pools(self, name: str, place: Placement, sign: int) -> None:
        for amounts, left in ((place.cpus, self.index.cpus), (place.mem, self.index.mem)):
            for node, amount in amounts:
                left[node] += sign * amount
                if sign < 0:
                    self.tenants[node // self.shape.nodes].add(name)
                else:
                    self.tenants[node // self.shape.nodes].discard(name)
