"""Reservations, and the combination of all those that matter for some period."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest


@dataclass
class Reservation:
    """A placement promised from `start` to `end`, in seconds; `holds` once it is held under its own name."""

    request: PlacementRequest
    start: float
    end: float
    place: Placement
    holds: bool = False


@dataclass
class CombinedReservations:
    """Several promises as one: masks of whole nodes by cabinet, dies by node, sockets and GiB by node."""

    whole: dict[int, int] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    cpus: Counter[int] = field(default_factory=Counter)
    mem: Counter[int] = field(default_factory=Counter)

    def nodes(self, index: FreeCapacityIndex) -> set[int]:
        whole = {c * index.nodes + offset for c, mask in self.whole.items() for offset in index.offsets(mask)}
        return whole | set(self.parts) | set(self.cpus) | set(self.mem)


class ReservedCapacity:
    """Reservations whose start has not come, ordered by start."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self.waiting = sorted((r for r in reservations if not r.holds), key=lambda r: (r.start, r.end))
        self._starts = [reservation.start for reservation in self.waiting]
        self._combined: dict[int, CombinedReservations] = {}

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def between(self, start: float, end: float) -> CombinedReservations:
        """What is promised at any time in between."""
        reached = bisect_left(self._starts, end)
        if start != -inf:
            return combine([r for r in self.waiting[:reached] if r.end > start])
        if reached not in self._combined:
            self._combined[reached] = combine(self.waiting[:reached])
        return self._combined[reached]


def combine(reservations: list[Reservation]) -> CombinedReservations:
    found = CombinedReservations()
    for reservation in reservations:
        place = reservation.place
        for cabinet, mask in place.whole + place.spares:
            found.whole[cabinet] = found.whole.get(cabinet, 0) | mask
        for node, dies in place.parts:
            found.parts[node] = found.parts.get(node, 0) | dies
        if place.cpus or place.mem:  # the total promised at once peaks when one of them starts
            at_once = [r.place for r in reservations if r.start <= reservation.start < r.end]
            for peak, amounts in ((found.cpus, [p.cpus for p in at_once]), (found.mem, [p.mem for p in at_once])):
                total: Counter[int] = Counter()
                for each in amounts:
                    for node, amount in each:
                        total[node] += amount
                peak |= total  # the larger of the two for each node
    return found
