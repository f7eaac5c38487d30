"""Preferences of a request: satisfied where they fit, dropped one after another where they do not.

The preferred level is dropped first, then affinity and anti-affinity; the spread is as even as the rest allows.
Required constraints always hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import constrained


def choose(ledger: LedgerState, request: PlacementRequest) -> Placement | None:
    """A placement that satisfies what is required and as many of the preferences as fit, or None."""
    return first_that_fits(ledger.shape, request, lambda strict: _choose_strict(ledger, strict))


def first_that_fits(
    shape: ClusterShape, request: PlacementRequest, place: Callable[[PlacementRequest], Placement | None]
) -> Placement | None:
    """What `place` finds for the request with as many of its preferences turned into constraints as it can satisfy."""
    if not request.has_preferences:
        return place(request)
    for strict in _with_preferences_required(request):
        found = _spread_evenly(shape, strict, place)
        if found is not None:
            return found
    return None


def _choose_strict(ledger: LedgerState, request: PlacementRequest) -> Placement | None:
    return constrained.choose(ledger, request) if not request.unconstrained else ledger.chooser.choose(request)


def _with_preferences_required(request: PlacementRequest) -> Iterator[PlacementRequest]:
    """The request with its level and its affinities as constraints; then without the level; then without the
    affinities."""
    soft = [
        key
        for key in ("affinity", "anti_affinity")
        if (rule := getattr(request, key)) is not None and not rule.required
    ]
    kept: dict[str, DomainConstraint] = {key: replace(getattr(request, key), required=True) for key in soft}
    narrower = request.preferred_domain and (
        not request.required_domain
        or (request.required_domain == "supernode" and request.preferred_domain == "cabinet")
    )
    levels = [request.preferred_domain, request.required_domain] if narrower else [request.required_domain]
    choices: list[dict[str, Any]] = [kept, dict.fromkeys(soft)] if soft else [{}]
    for rules in choices:
        for level in levels:
            yield replace(request, required_domain=level, preferred_domain="", **rules)


def _spread_evenly(
    shape: ClusterShape, request: PlacementRequest, place: Callable[[PlacementRequest], Placement | None]
) -> Placement | None:
    """As few nodes in one domain as possible, where the spread is a preference."""
    if request.spread is None or request.spread.required:
        return place(request)
    over = request.spread.over
    domains = max(1, shape.size_of(request.required_domain) // shape.size_of(over))
    low, high = max(1, -(-request.nodes // domains)), min(request.nodes, shape.size_of(over))

    def spread(most: int) -> Placement | None:
        return place(replace(request, spread=DomainConstraint(over, most)))

    best = spread(low) if low < high else None
    if best is not None:
        return best
    best = place(replace(request, spread=None))
    while best is not None and low < high - 1:
        middle = (low + high) // 2
        found = spread(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best
