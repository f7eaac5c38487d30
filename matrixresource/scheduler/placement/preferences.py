"""Preferences of a request: kept where they fit, given up one after another where they do not.

The preferred level goes first, then what it would like to be near to or apart from; the spread is as even as the rest
allows. What is required is required throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest
from matrixresource.scheduler.placement import constrained

if TYPE_CHECKING:
    from matrixresource.scheduler.ledger import Ledger


def choose(ledger: Ledger, wish: PlacementRequest) -> Placement | None:
    """A place that keeps what is required and as many of the preferences as fit, or None."""
    return first_that_fits(ledger.shape, wish, lambda firm: _firmly(ledger, firm))


def first_that_fits(
    shape: ClusterShape, wish: PlacementRequest, place: Callable[[PlacementRequest], Placement | None]
) -> Placement | None:
    """What `place` finds for the request with its preferences made rules, as many of them as it can serve."""
    if not wish.soft:
        return place(wish)
    for firm in _firmed(wish):
        found = _evenly(shape, firm, place)
        if found is not None:
            return found
    return None


def _firmly(ledger: Ledger, wish: PlacementRequest) -> Placement | None:
    return constrained.choose(ledger, wish) if not wish.unconstrained else ledger.choose_unreserved(wish)


def _firmed(wish: PlacementRequest) -> Iterator[PlacementRequest]:
    """The request with its level and its neighbours as rules; then without the level; then without the neighbours."""
    soft = [
        key for key in ("affinity", "anti_affinity") if (rule := getattr(wish, key)) is not None and not rule.required
    ]
    kept: dict[str, DomainConstraint] = {key: replace(getattr(wish, key), required=True) for key in soft}
    narrower = wish.preferred_domain and (
        not wish.required_domain or (wish.required_domain == "supernode" and wish.preferred_domain == "cabinet")
    )
    levels = [wish.preferred_domain, wish.required_domain] if narrower else [wish.required_domain]
    choices: list[dict[str, Any]] = [kept, dict.fromkeys(soft)] if soft else [{}]
    for rules in choices:
        for level in levels:
            yield replace(wish, required_domain=level, preferred_domain="", **rules)


def _evenly(
    shape: ClusterShape, wish: PlacementRequest, place: Callable[[PlacementRequest], Placement | None]
) -> Placement | None:
    """As few nodes of one domain as can be, where the spread is a preference."""
    if wish.spread is None or wish.spread.required:
        return place(wish)
    over = wish.spread.over
    sizes = {"node": 1, "cabinet": shape.nodes, "supernode": shape.of_supernode, "": shape.all_nodes}
    domains = max(1, sizes[wish.required_domain] // sizes[over])
    low, high = max(1, -(-wish.nodes // domains)), min(wish.nodes, sizes[over])

    def spread(most: int) -> Placement | None:
        return place(replace(wish, spread=DomainConstraint(over, most)))

    best = spread(low) if low < high else None
    if best is not None:
        return best
    best = place(replace(wish, spread=None))
    while best is not None and low < high - 1:
        middle = (low + high) // 2
        found = spread(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best
