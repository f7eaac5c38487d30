"""Hides from the index what a request must not have, while a placement is chosen for it.

That is the nodes it excludes, and what is promised to reservations that start before it leaves. Promised dies are
hidden one by one; for sockets and GiB, the most that is promised at any one time. The cost is proportional to what is
promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf

from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.reservations import CombinedReservations
from matrixresource.scheduler.model.state import LedgerState


@contextmanager
def hide_reservations(ledger: LedgerState, request: PlacementRequest, start: float = -inf) -> Iterator[None]:
    """Choose inside, for a stay from `start` to the end of the request. The index must be unchanged at the end."""
    promised = ledger.reserved_capacity.between(start, request.lease_end) if ledger.reserved_capacity else None
    with nodes_closed(ledger.index, request.excluded_nodes):
        if promised is None:
            yield
            return
        hidden = _hide(ledger.index, promised)
        try:
            yield
        finally:
            _restore(ledger.index, hidden)


def _hide(index: FreeCapacityIndex, promised: CombinedReservations) -> Placement:
    """Take what is free of it, and return what that was."""
    hidden = Placement()
    for cabinet, mask in promised.whole.items():
        free = index.whole[cabinet] & mask
        if free:
            index.allocate_nodes(cabinet, free)
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
        index.allocate_dies(node, free)
        hidden.parts.append((node, free))


def _restore(index: FreeCapacityIndex, hidden: Placement) -> None:
    for cabinet, mask in hidden.whole:
        index.release_nodes(cabinet, mask)
    for node, dies in hidden.parts:
        index.release_dies(node, dies)
    for taken, left in ((hidden.cpus, index.cpus), (hidden.mem, index.mem)):
        for node, amount in taken:
            left[node] += amount


@contextmanager
def nodes_closed(index: FreeCapacityIndex, nodes: Iterable[int]) -> Iterator[None]:
    """Close nodes to new work for a while; present holders keep them."""
    closed = [node for node in nodes if index.up[node]]
    for node in closed:
        index.set_up(node, False)
    try:
        yield
    finally:
        for node in closed:
            index.set_up(node, True)


def is_promised(ledger: LedgerState, node: int, end: float) -> bool:
    """Whether any NPU of a node is promised to a reservation that starts before `end`."""
    if not ledger.reserved_capacity:
        return False
    promised, (cabinet, offset) = ledger.reserved_capacity.between(-inf, end), divmod(node, ledger.index.nodes)
    return bool(promised.whole.get(cabinet, 0) >> offset & 1) or node in promised.parts


def conflicts_with_reservations(ledger: LedgerState, name: str, place: Placement, end: float) -> bool:
    """Whether `name` would take what is promised if it kept its own placement until a later `end`.

    For sockets and GiB this errs on the safe side: it may report a conflict although others leave between two
    reservations, but never misses one.
    """
    if not ledger.reserved_capacity or end <= ledger.allocations[name].request.lease_end:
        return False
    index, nodes = ledger.index, ledger.shape.nodes
    promised = ledger.reserved_capacity.between(-inf, end)
    for cabinet, mask in place.whole + place.spares:
        if mask & promised.whole.get(cabinet, 0):
            return True
        if any(cabinet * nodes + offset in promised.parts for offset in index.offsets(mask)):
            return True
    for node, dies in place.parts:
        if dies & promised.parts.get(node, 0) or promised.whole.get(node // nodes, 0) >> node % nodes & 1:
            return True
    first = ledger.reserved_capacity.waiting[0].start
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
