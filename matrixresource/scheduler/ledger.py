"""Ledger: takes requests, returns placements, all or nothing; handles failures and their repair.

The index is updated with every change. Times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from matrixresource.scheduler.changes import preemption
from matrixresource.scheduler.changes import resize as resizing
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import HeldAllocation, LedgerState
from matrixresource.scheduler.placement.choose import choose


class Ledger(LedgerState):
    """The verbs over one machine."""

    def copy(self) -> Ledger:
        """An independent copy of the ledger."""
        copy = Ledger(self.shape, self.chooser.policy)
        self.fill_copy(copy)
        return copy

    # ---- verbs

    def allocate(
        self,
        name: str,
        request: PlacementRequest,
        now: float,
        victims: Callable[[], list[str] | None] | None = None,
    ) -> tuple[Placement | None, list[str]]:
        """Allocate; return the placement, or None, and the allocations that were preempted for it. `victims` finds whom
        to preempt; by default the search runs here."""
        if name in self.allocations or name in self.reservations:
            raise ValueError(f"{name}: already allocated or reserved")
        self.chooser.observe_size(request)
        place = choose(self, request)
        evicted: list[str] = []
        if place is None and request.preempts:
            evicted = (preemption.victims(self, request, now) if victims is None else victims()) or []
            for other in evicted:
                self.release(other)
            place = choose(self, request) if evicted else None
        if place is not None:
            self.add_usage(name, place, request.lease_end)  # chosen on the index as it is, so it is free
            self.allocations[name] = HeldAllocation(request, place, now)
        return place, evicted

    def choose(self, request: PlacementRequest) -> Placement | None:
        """A placement on what is free now that satisfies every constraint of the request, or None."""
        return choose(self, request)

    def replace(self, name: str, node: int, excluded_nodes: frozenset[int] = frozenset()) -> Placement | None:
        """The placement with another node in place of `node`, or None if there is none."""
        return self.replace_placement(
            name, self.allocations[name].request, resizing.replace(self, name, node, excluded_nodes)
        )

    def refill(self, name: str) -> Placement:
        """The placement with as many of its missing spares as can be found."""
        place = resizing.refill(self, name)
        self.replace_placement(name, self.allocations[name].request, place)
        return place

    # ---- nodes

    def set_up(self, node: int, up: bool) -> None:
        """Open or close a node for new work; what runs there stays."""
        self.index.set_up(node, up)

    def fail_over(self, name: str, node: int, excluded_nodes: frozenset[int] = frozenset()) -> Placement | None:
        """Replace a lost node: within the constraints of the request or, if that fails, with its domain and spread only
        preferred. None, and nothing changed, if there is no node. No other member moves."""
        place = self.replace(name, node, excluded_nodes)
        if place is not None:
            return place
        allocation = self.allocations[name]
        request = allocation.request
        spread = None if request.spread is None else replace(request.spread, required=False)
        required = "supernode" if request.required_domain == "cabinet" else request.required_domain
        preferred = request.required_domain
        allocation.request = replace(request, required_domain=required, preferred_domain=preferred, spread=spread)
        place = self.replace(name, node, excluded_nodes)
        if place is None:
            allocation.request = request
        return place
