"""What a request must not have is taken out of the index while a place is chosen for it, and put back after.

That is the nodes it avoids, and what is promised to reservations that start before it leaves. Dies are promised one by
one; of sockets and GiB the most that is promised at any one time. The cost is in proportion to what is promised.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest

if TYPE_CHECKING:
    from matrixresource.scheduler.ledger import Ledger


@dataclass
class Reservation:
    """A place promised from `start` to `end`, in seconds; `holds` once it has come to be held under its own name."""

    request: PlacementRequest
    start: float
    end: float
    place: Placement
    holds: bool = False


@dataclass
class CombinedReservations:
    """Promises as one: masks of whole nodes by cabinet, dies by node, sockets and GiB by node."""

    whole: dict[int, int] = field(default_factory=dict)
    parts: dict[int, int] = field(default_factory=dict)
    cpus: Counter[int] = field(default_factory=Counter)
    mem: Counter[int] = field(default_factory=Counter)

    def nodes(self, index: FreeCapacityIndex) -> set[int]:
        whole = {c * index.nodes + offset for c, mask in self.whole.items() for offset in index.offsets(mask)}
        return whole | set(self.parts) | set(self.cpus) | set(self.mem)


class ReservedCapacity:
    """Reservations whose start has not come, by start."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self.waiting = sorted((r for r in reservations if not r.holds), key=lambda r: (r.start, r.end))
        self._starts = [reservation.start for reservation in self.waiting]
        self._known: dict[int, CombinedReservations] = {}

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def between(self, start: float, end: float) -> CombinedReservations:
        """What is promised at any time in between."""
        reached = bisect_left(self._starts, end)
        if start != -inf:
            return combine([r for r in self.waiting[:reached] if r.end > start])
        if reached not in self._known:
            self._known[reached] = combine(self.waiting[:reached])
        return self._known[reached]


def combine(reservations: list[Reservation]) -> CombinedReservations:
    found = CombinedReservations()
    for reservation in reservations:
        place = reservation.place
        for cabinet, mask in place.whole + place.spares:
            found.whole[cabinet] = found.whole.get(cabinet, 0) | mask
        for node, dies in place.parts:
            found.parts[node] = found.parts.get(node, 0) | dies
        if place.cpus or place.mem:  # what is promised at once is the most when one of them starts
            at_once = [r.place for r in reservations if r.start <= reservation.start < r.end]
            for peak, amounts in ((found.cpus, [p.cpus for p in at_once]), (found.mem, [p.mem for p in at_once])):
                total: Counter[int] = Counter()
                for each in amounts:
                    for node, amount in each:
                        total[node] += amount
                peak |= total  # the larger of the two for each node
    return found


@contextmanager
def hide_reservations(ledger: Ledger, request: PlacementRequest, start: float = -inf) -> Iterator[None]:
    """Choose inside, for a stay from `start` to the end of the wish; the index is to be at the end as it was here."""
    promised = ledger.promises.between(start, request.lease_end) if ledger.promises else None
    with closed(ledger.index, request.excluded_nodes):
        if promised is None:
            yield
            return
        hidden = _hide(ledger.index, promised)
        try:
            yield
        finally:
            _show(ledger.index, hidden)


def _hide(index: FreeCapacityIndex, promised: CombinedReservations) -> Placement:
    """Takes what is free of it, and says what that was."""
    hidden = Placement()
    for cabinet, mask in promised.whole.items():
        free = index.whole[cabinet] & mask
        if free:
            index.take_whole(cabinet, free)
            hidden.whole.append((cabinet, free))
        for offset in index.offsets(mask & ~free):
            _hide_dies(index, cabinet * index.nodes + offset, index.shape.dies, hidden)
    for node, dies in promised.parts.items():
        _hide_dies(index, node, dies, hidden)
    for amounts, left, taken in (
        (promised.cpus, index.cpus, hidden.cpus),
        (promised.mem, index.mem, hidden.mem),
    ):
        for node, amount in amounts.items():
            taken.append((node, min(amount, left[node])))
            left[node] -= taken[-1][1]
    return hidden


def _hide_dies(index: FreeCapacityIndex, node: int, dies: int, hidden: Placement) -> None:
    free = index.dies[node] & dies
    if free and index.up[node]:
        index.take(node, free)
        hidden.parts.append((node, free))


def _show(index: FreeCapacityIndex, hidden: Placement) -> None:
    for cabinet, mask in hidden.whole:
        index.give_whole(cabinet, mask)
    for node, dies in hidden.parts:
        index.give(node, dies)
    for taken, left in ((hidden.cpus, index.cpus), (hidden.mem, index.mem)):
        for node, amount in taken:
            left[node] += amount


@contextmanager
def closed(index: FreeCapacityIndex, nodes: Iterable[int]) -> Iterator[None]:
    """Nodes take nobody for a while; who holds them keeps them."""
    shut = [node for node in nodes if index.up[node]]
    for node in shut:
        index.set_up(node, False)
    try:
        yield
    finally:
        for node in shut:
            index.set_up(node, True)


def conflicts_with_reservations(ledger: Ledger, name: str, place: Placement, end: float) -> bool:
    """Whether `name` would take what is promised if it kept a place of its own until a later `end`.

    Of sockets and GiB it says so too early where others leave between two reservations, never too late.
    """
    if not ledger.promises or end <= ledger.allocations[name].request.lease_end:
        return False
    index, nodes = ledger.index, ledger.shape.nodes
    promised = ledger.promises.between(-inf, end)
    for cabinet, mask in place.whole + place.spares:
        if mask & promised.whole.get(cabinet, 0):
            return True
        if any(cabinet * nodes + offset in promised.parts for offset in index.offsets(mask)):
            return True
    for node, dies in place.parts:
        if dies & promised.parts.get(node, 0) or promised.whole.get(node // nodes, 0) >> node % nodes & 1:
            return True
    first = ledger.promises.waiting[0].start
    staying = [
        allocation.place
        for other, allocation in ledger.allocations.items()
        if other != name and allocation.request.lease_end > first
    ]
    for key, most in (("cpus", ledger.shape.cpus), ("mem", ledger.shape.mem_gib)):
        total = Counter(getattr(promised, key))
        mine = dict(getattr(place, key))
        for each in [place, *staying] if mine and total else ():
            for node, amount in getattr(each, key):
                total[node] += amount
        if any(total[node] > most for node in mine):
            return True
    return False
