"""How reservations affect a refusal: which nodes are promised during the requested time, and to which reservations."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.scheduler.changes.advance_reservation import place_between, without_promises
from matrixresource.scheduler.model.request import PlacementRequest

NAMED_MAX = 3


def promised_nodes(ledger: LedgerSync, request: PlacementRequest, start: float = -inf) -> set[NodeName]:
    """The nodes of which anything is promised to a reservation between `start` and the end of the request."""
    promised = ledger.ledger.promises.between(start, request.lease_end)
    return {ledger.name(number) for number in promised.nodes(ledger.ledger.index)}


def promises_in_the_way(ledger: LedgerSync, request: PlacementRequest, start: float = -inf) -> str:
    """The reservations without which the request would fit, as the end of a sentence; "" if it would not fit without
    them either."""
    state = ledger.ledger
    met = sorted(
        (each.start, each.end, name)
        for name, each in state.reservations.items()
        if not each.holds and each.start < request.lease_end and each.end > start
    )
    if not met:
        return ""
    with without_promises(state):
        if place_between(state, request, start) is None:
            return ""
    named = [f"{name} ({timestamp(begin)} to {timestamp(end)})" for begin, end, name in met[:NAMED_MAX]]
    more = f" and {len(met) - NAMED_MAX} more" if len(met) > NAMED_MAX else ""
    text = f"the free capacity is promised to reservation{'s' if len(met) > 1 else ''} {', '.join(named)}{more}"
    first = met[0][0]
    if start == -inf and place_between(state, replace(request, lease_end=first), start) is not None:
        text += f"; it would fit with a lease (`leaseS`) that ends by {timestamp(first)}"
    return text
