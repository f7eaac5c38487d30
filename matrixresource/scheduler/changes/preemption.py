"""Whom a request may preempt: only lower priorities, with the least work lost, and nobody unnecessarily.

Nodes that the request avoids and capacity promised to reservations stay out of reach, since trials choose as requests
do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matrixresource.scheduler.changes import resize as resizing
from matrixresource.scheduler.changes.trial import trial
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import HeldAllocation, LedgerState
from matrixresource.scheduler.placement.choose import choose


def victims(ledger: LedgerState, request: PlacementRequest, now: float) -> list[str] | None:
    """Allocations to release so that the request fits, or None if that would not help. Nothing is changed.

    They are released one after another on trial, the cheapest first, until it fits; then each that turns out not to be
    needed is kept, the most expensive first.
    """
    return _find_victims(ledger, request, now, lambda: choose(ledger, request) is not None)


def growth_victims(
    ledger: LedgerState, name: str, request: PlacementRequest, keep: list[int], now: float
) -> list[str] | None:
    """The same for an allocation that changes its size."""
    return _find_victims(ledger, request, now, lambda: resizing.resize(ledger, name, request, keep) is not None, name)


def are_sufficient(
    ledger: LedgerState, names: list[str], request: PlacementRequest, name: str, keep: list[int]
) -> bool:
    """Whether these may be preempted and suffice: for a new allocation, or for the existing allocation `name`."""
    allocations = ledger.allocations
    if not all(each in allocations and allocations[each].request.priority < request.priority for each in names):
        return False
    with trial(ledger) as released:
        for each in names:
            released(each)
        if name in allocations:
            return resizing.resize(ledger, name, request, keep) is not None
        return choose(ledger, request) is not None


def resize(
    ledger: LedgerState,
    name: str,
    request: PlacementRequest,
    keep: list[int],
    victims: Callable[[], list[str] | None],
    warm: Sequence[int] = (),
) -> tuple[Placement | None, list[str]]:
    """`resize` for an allocation that may preempt: the new placement, or None, and whom of `victims` it preempted.
    `warm` are its own spares, to become members before free nodes do."""
    place = _try_resize(ledger, name, request, keep, warm)
    if place is not None or not request.preempts:
        return place, []
    evicted = victims() or []
    for other in evicted:
        ledger.release(other)
    return (_try_resize(ledger, name, request, keep, warm) if evicted else None), evicted


def _try_resize(
    ledger: LedgerState, name: str, request: PlacementRequest, keep: list[int], warm: Sequence[int]
) -> Placement | None:
    return ledger.replace_placement(name, request, resizing.resize(ledger, name, request, keep, warm))


def _find_victims(
    ledger: LedgerState, request: PlacementRequest, now: float, fits: Callable[[], bool], excluded: str = ""
) -> list[str] | None:
    work = {
        name: lost_work(allocation, now)
        for name, allocation in ledger.allocations.items()
        if allocation.request.priority < request.priority and name != excluded
    }
    with trial(ledger) as released:
        for name in sorted(work, key=lambda name: (work[name], name)):
            released(name)
            if fits():
                break
        else:
            return None
        for name in reversed(list(released.released)):
            released.undo(name)
            if not fits():
                released(name)
        return sorted(released.released, key=lambda name: (work[name], name))


def lost_work(allocation: HeldAllocation, now: float) -> float:
    """The work that an eviction throws away, in weighted NPU-seconds; a restart is charged as a minute."""
    return (now - allocation.since + 60.0) * allocation.request.npus * allocation.request.weight
