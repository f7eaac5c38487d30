"""Place simultaneous requests together, searching for the best order.

The search starts from largest first, which places the most, and tries orders with two requests exchanged. An order is
kept if it places more requests, or as many with gangs in fewer cabinets. Orders are tried on the ledger itself, and
revoked.
"""

from __future__ import annotations

import random

from benchmarks.allocator.ledger_verbs import hold
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.placement.choose import choose

PLACEMENTS = 12_000  # tried in all, about a third of a second


def allocate_together(
    ledger: Ledger,
    requests: dict[str, PlacementRequest],
    now: float,
    rng: random.Random,
    placements: int = PLACEMENTS,
) -> dict[str, Placement | None]:
    """Allocate the requests that fit, in the best order found. Returns the placements by name; None if refused."""
    order = sorted(
        requests,
        key=lambda name: (
            -requests[name].nodes,
            not requests[name].required_domain,
            -requests[name].npus_per_node,
            name,
        ),
    )
    for request in requests.values():
        ledger.chooser.observe_size(request)
    best = _score_order(ledger, requests, order, now)
    if len(order) > 1:
        for _ in range(placements // len(order)):
            other = list(order)
            a, b = rng.sample(range(len(other)), 2)
            if rng.random() < 0.5:
                other[a], other[b] = other[b], other[a]
            else:
                other.insert(b, other.pop(a))
            rank = _score_order(ledger, requests, other, now)
            if rank >= best:
                best, order = rank, other
    placed: dict[str, Placement | None] = dict.fromkeys(requests)
    for name in order:
        place = placed[name] = choose(ledger, requests[name])
        if place is not None:
            hold(ledger, name, requests[name], place, now)
    return placed


def _score_order(
    ledger: Ledger, requests: dict[str, PlacementRequest], order: list[str], now: float
) -> tuple[float, int]:
    """Try an order, and undo it. Returns its score: weighted NPUs placed, and minus the cabinets of gangs."""
    value, cabinets = 0.0, 0
    taken: list[str] = []
    for name in order:
        request = requests[name]
        place = choose(ledger, request)
        if place is None:
            continue
        hold(ledger, name, request, place, now)
        taken.append(name)
        value += request.npus * request.weight
        if request.nodes > 1:
            cabinets += len(place.cabinets(ledger.shape.nodes))
    for name in reversed(taken):
        ledger.release(name)
    return value, -cabinets
