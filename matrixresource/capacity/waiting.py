"""When a request fits if everybody leaves when they said."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from matrixresource.capacity import reserving
from matrixresource.capacity.releasing import domain_of_whole
from matrixresource.capacity.trials import trial
from matrixresource.capacity.wishes import Wish

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Ledger


def earliest(ledger: Ledger, wish: Wish, now: float) -> float | None:
    """The first moment at which it fits if everybody leaves as said; None when that never happens.

    Beside reservations it must fit for as long as it means to stay.
    """
    if ledger.promises:
        with reserving.without_promises(ledger):
            least = now if ledger.choose(wish) is not None else earliest(ledger, wish, now)
        return None if least is None else reserving.first_start(ledger, wish, now, least)
    if size := domain_of_whole(ledger, wish):
        moment = when_empty(ledger, wish.nodes + wish.spares, size, wish.avoid)
        return None if moment == inf else max(moment, now)
    return _departures(ledger, wish, now)


def when_empty(ledger: Ledger, wanted: int, size: int, avoid: frozenset[int] = frozenset()) -> float:
    """When so many nodes of one domain of `size` nodes will be entirely free; infinite when that never happens."""
    shape, index = ledger.shape, ledger.index
    if wanted > size:
        return inf
    nodes = shape.nodes
    until = [0.0 if up else inf for up in index.up]
    for node in avoid:
        until[node] = inf
    for held in ledger.held.values():
        end, place = held.wish.end, held.place
        for cabinet, mask in (*place.whole, *place.spares) if place.spares else place.whole:
            base = cabinet * nodes
            for offset in index.offsets(mask):
                if until[base + offset] < end:
                    until[base + offset] = end
        for node, _ in place.parts:
            if until[node] < end:
                until[node] = end
    if size == nodes:
        return min(sorted(until[first : first + size])[wanted - 1] for first in range(0, shape.all_nodes, size))
    best = inf
    for first in range(0, shape.all_nodes, size):
        here = until[first : first + size]
        if sum(moment < best for moment in here) >= wanted:
            best = min(best, sorted(here)[wanted - 1])
    return best


def _departures(ledger: Ledger, wish: Wish, now: float) -> float | None:
    """The same for any rules: everybody leaves on trial, in growing strides, and then in halves."""
    leaving = sorted((held.wish.end, name) for name, held in ledger.held.items() if held.wish.end != inf)
    low, high = 0, len(leaving)  # it does not fit when the first `low` have left; it does, if at all, with `high`
    with trial(ledger) as released:
        step = 1
        while low < high:
            reach = min(low + step, high)
            for _, name in leaving[low:reach]:
                released(name)
            if ledger.choose(wish) is None:
                low, step = reach, step * 2
                continue
            if reach == low + 1:
                return max(leaving[low][0], now)
            for _, name in reversed(leaving[low:reach]):
                released.take_back(name)
            high, step = reach, max(1, (reach - low) // 2)
    return None
