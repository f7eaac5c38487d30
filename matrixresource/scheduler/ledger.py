"""Who holds what: requests in, places out, all or nothing; failures and their repair.

The index is kept in step with every change. Times are seconds on the caller's clock.
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
        """The same ledger for itself: what is done to the one is not done to the other."""
        made = Ledger(self.shape, self.chooser.policy)
        self.fill_copy(made)
        return made

    # ---- verbs

    def allocate(
        self,
        name: str,
        request: PlacementRequest,
        now: float,
        victims: Callable[[], list[str] | None] | None = None,
    ) -> tuple[Placement | None, list[str]]:
        """The place taken, or None; and whom it preempted of theirs. `victims` finds whom it may preempt, by default by
        a search here."""
        if name in self.allocations or name in self.reservations:
            raise ValueError(f"{name}: held already")
        self.chooser.observe_size(request)
        place = choose(self, request)
        evicted: list[str] = []
        if place is None and request.preempts:
            evicted = (preemption.victims(self, request, now) if victims is None else victims()) or []
            for other in evicted:
                self.release(other)
            place = choose(self, request) if evicted else None
        if place is not None:
            self.take(name, place, request.lease_end)  # chosen on the index as it is, so it is free
            self.allocations[name] = HeldAllocation(request, place, now)
        return place, evicted

    def choose(self, request: PlacementRequest) -> Placement | None:
        """A place that keeps every rule of the request on what is free now, or None."""
        return choose(self, request)

    def replace(self, name: str, node: int, avoid: frozenset[int] = frozenset()) -> Placement | None:
        """The place with another node for this one; None when there is none."""
        return self.change(name, self.allocations[name].request, resizing.replace(self, name, node, avoid))

    def refill(self, name: str) -> Placement:
        """The place with missing spares, as many as can be had."""
        place = resizing.refill(self, name)
        self.change(name, self.allocations[name].request, place)
        return place

    # ---- nodes

    def set_up(self, node: int, up: bool) -> None:
        """Open or close a node for newcomers; nobody is moved."""
        self.index.set_up(node, up)

    def fail_over(self, name: str, node: int, avoid: frozenset[int] = frozenset()) -> Placement | None:
        """The place with another node for a lost one, by the rules of the request, else with its domain and spread as
        preferences; None, and nothing changed, when there is none. Nobody else moves."""
        place = self.replace(name, node, avoid)
        if place is not None:
            return place
        allocation = self.allocations[name]
        request = allocation.request
        spread = None if request.spread is None else replace(request.spread, required=False)
        within = "supernode" if request.required_domain == "cabinet" else request.required_domain
        preferred = request.required_domain
        allocation.request = replace(request, required_domain=within, preferred_domain=preferred, spread=spread)
        place = self.replace(name, node, avoid)
        if place is None:
            allocation.request = request
        return place
