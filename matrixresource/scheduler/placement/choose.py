"""The choice of a place: best fit where nothing else is asked, rules and preferences where they are."""

from __future__ import annotations

from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import preferences
from matrixresource.scheduler.placement.reserved_capacity import hide_reservations


def choose(state: LedgerState, request: PlacementRequest) -> Placement | None:
    """A place that keeps every rule of the request on what is free now, or None."""
    if state.promises.waiting or request.excluded_nodes:
        with hide_reservations(state, request):
            return choose_unreserved(state, request)
    return choose_unreserved(state, request)


def choose_unreserved(state: LedgerState, request: PlacementRequest) -> Placement | None:
    """The same on the index as it stands, where what the request must not have is withheld already."""
    if request.unconstrained:
        return state.chooser.choose(request)
    if request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
        return None  # no number of whole blocks
    return preferences.choose(state, request)
