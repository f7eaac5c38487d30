"""Trial releases: pretend on the ledger itself that some allocations are gone, and undo it without a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import HeldAllocation, LedgerState
from matrixresource.scheduler.placement.choose import choose

RESTORE_GROUPS = 16  # from this many allocations on, they are restored several at a time


class Trial:
    """Allocations released on trial, in order. Call it to release one more."""

    def __init__(self, ledger: LedgerState) -> None:
        self.ledger = ledger
        self.released: dict[str, HeldAllocation] = {}

    def __call__(self, name: str) -> None:
        allocation = self.released[name] = self.ledger.allocations.pop(name)
        self.ledger.remove_usage(name, allocation.place)

    def undo(self, name: str) -> None:
        allocation = self.ledger.allocations[name] = self.released.pop(name)
        self.ledger.add_usage(name, allocation.place, allocation.request.lease_end)

    def restore(self) -> None:
        for name in list(self.released):
            self.undo(name)

    def fits_without(self, names: Iterable[str], request: PlacementRequest) -> bool:
        """Whether a request fits once these are gone too; they are restored afterwards."""
        names = tuple(names)
        for name in names:
            self(name)
        fits = choose(self.ledger, request) is not None
        for name in names:
            self.undo(name)
        return fits

    def count_whole_nodes(self, names: list[str]) -> int:
        """How many nodes that are entirely free now these would take."""
        index = self.ledger.index
        count, started = 0, set[int]()
        for name in names:
            place = self.released[name].place
            for cabinet, mask in place.whole + place.spares if place.spares else place.whole:
                count += (mask & index.whole[cabinet]).bit_count()
            for node, _ in place.parts:
                if index.free[node] == index.npus:
                    started.add(node)
        return count + len(started)

    def minimal_subset(self, request: PlacementRequest, tests: float) -> list[str]:
        """Those that must be gone for the request: restores as many as it can within `tests` tests, the largest first,
        several at a time when there are very many."""
        names = sorted(self.released, key=lambda each: -self.released[each].request.npus)
        stride = max(1, len(names) // RESTORE_GROUPS)
        wanted = request.spares + (request.nodes if request.npus_per_node == self.ledger.shape.npus else 0)
        while True:
            for first in range(0, len(names), stride):
                tests -= 1
                if tests < 0:
                    return list(self.released)
                some = names[first : first + stride]
                if wanted and sum(self.ledger.index.whole_counts) - self.count_whole_nodes(some) < wanted:
                    continue  # without these nodes there are too few
                for name in some:
                    self.undo(name)
                if choose(self.ledger, request) is None:
                    for name in some:
                        self(name)
            if stride == 1:
                return list(self.released)
            names = [name for name in names if name in self.released]
            stride //= 2


@contextmanager
def trial(ledger: LedgerState) -> Iterator[Trial]:
    """Release allocations for a while; everything is restored at the end, including hints about leaving times."""
    ends = list(ledger.chooser.node_ends), list(ledger.chooser.cabinet_ends)
    current, ledger.allocations = ledger.allocations, dict(ledger.allocations)
    released = Trial(ledger)
    try:
        yield released
    finally:
        released.restore()
        ledger.chooser.node_ends, ledger.chooser.cabinet_ends = ends
        ledger.allocations = current
