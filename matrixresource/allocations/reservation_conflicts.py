"""How reservations affect a refusal: which nodes are promised during the requested time, and to which reservations."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.scheduler.changes.advance_reservation import ignoring_reservations, place_between
from matrixresource.scheduler.model.request import PlacementRequest

RESERVATIONS_SHOWN = 3


def promised_nodes(ledger: LedgerSync, request: PlacementRequest, start: float = -inf) -> set[NodeName]:
    """The nodes of which anything is promised to a reservation between `start` and the end of the request."""
    promised = ledger.ledger.reserved_capacity.between(start, request.lease_end)
    return {ledger.name(number) for number in promised.nodes(ledger.ledger.index)}


def conflicting_reservations(ledger: LedgerSync, request: PlacementRequest, start: float = -inf) -> str:
    """The reservations without which the request would fit, as the end of a sentence; "" if it would not fit without
    them either."""
    state = ledger.ledger
    conflicts = sorted(
        (each.start, each.end, name)
        for name, each in state.reservations.items()
        if not each.holds and each.start < request.lease_end and each.end > start
    )
    if not conflicts:
        return ""
    with ignoring_reservations(state):
        if place_between(state, request, start) is None:
            return ""
    named = [f"{name} ({timestamp(begin)} to {timestamp(end)})" for begin, end, name in conflicts[:RESERVATIONS_SHOWN]]
    more = f" and {len(conflicts) - RESERVATIONS_SHOWN} more" if len(conflicts) > RESERVATIONS_SHOWN else ""
    text = f"the free capacity is promised to reservation{'s' if len(conflicts) > 1 else ''} {', '.join(named)}{more}"
    first = conflicts[0][0]
    if start == -inf and place_between(state, replace(request, lease_end=first), start) is not None:
        text += f"; it would fit with a lease (`leaseS`) that ends by {timestamp(first)}"
    return text
