"""The choice of a placement: best fit for plain requests, constraints and preferences for the others."""

from __future__ import annotations

from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import preferences
from matrixresource.scheduler.placement.reserved_capacity import hide_reservations


def choose(state: LedgerState, request: PlacementRequest) -> Placement | None:
    """A placement on what is free now that satisfies every constraint of the request, or None."""
    if state.reserved_capacity.waiting or request.excluded_nodes:
        with hide_reservations(state, request):
            return choose_unreserved(state, request)
    return choose_unreserved(state, request)


def choose_unreserved(state: LedgerState, request: PlacementRequest) -> Placement | None:
    """The same on the index as it stands, from which everything off limits to the request has been hidden already."""
    if request.unconstrained:
        return state.chooser.choose(request)
    if request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
        return None  # not a whole number of blocks
    return preferences.choose(state, request)
