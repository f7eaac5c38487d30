"""When a request fits, if every lease ends as declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from matrixresource.scheduler.changes import advance_reservation
from matrixresource.scheduler.changes.trial import trial
from matrixresource.scheduler.explain.release_set import fits_empty_cluster, whole_node_domain_size
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.choose import choose


def earliest_start(ledger: LedgerState, request: PlacementRequest, now: float) -> float | None:
    """The first moment at which it fits if every lease ends as declared; None if that never happens.

    With reservations around, it must fit for its whole duration.
    """
    if not fits_empty_cluster(ledger.shape, request):
        return None
    if ledger.reserved_capacity:
        with advance_reservation.ignoring_reservations(ledger):
            least = now if choose(ledger, request) is not None else earliest_start(ledger, request, now)
        return None if least is None else advance_reservation.earliest_start(ledger, request, now, least)
    if size := whole_node_domain_size(ledger, request):
        moment = _earliest_when_empty(ledger, request, size)
    elif request.required_domain and request.nodes > 1:
        moment = _earliest_in_domain(ledger, request, ledger.shape.size_of(request.required_domain))
    else:
        missing = _missing_nodes(ledger, request, range(ledger.shape.all_cabinets))
        moment = _first_fitting_departure(
            ledger, ledger.allocations, inf, lambda: choose(ledger, request) is not None, missing
        )
    return None if moment == inf else max(moment, now)


def _earliest_when_empty(ledger: LedgerState, request: PlacementRequest, size: int) -> float:
    """For requests that fit as soon as some domain has enough entirely free nodes."""
    wanted, until, best = request.nodes + request.spares, _ready_times(ledger, request), inf
    for first in range(0, ledger.shape.all_nodes, size):
        best = min(best, sorted(until[first : first + size])[wanted - 1])
    return best


def _earliest_in_domain(ledger: LedgerState, request: PlacementRequest, size: int) -> float:
    """For any constraints inside one cabinet or supernode: try the domains one by one, those that can be ready
    first."""
    nodes = ledger.shape.nodes
    if size == ledger.shape.all_nodes:
        scope = range(ledger.shape.all_cabinets)
        return _first_fitting_departure(
            ledger, ledger.allocations, inf, _fit_test(ledger, request, scope), _missing_nodes(ledger, request, scope)
        )
    until = _ready_times(ledger, request)
    named = {
        other
        for rule in (request.anti_affinity, request.affinity)
        if rule
        for other in rule.others
        if other in ledger.allocations
    }
    ready = [(sorted(until[first : first + size])[request.nodes - 1], first) for first in range(0, len(until), size)]
    best = inf
    for least, first in sorted(ready):
        if least >= best:
            break
        scope = range(first // nodes, (first + size) // nodes)
        names = named.union(*(ledger.tenants[cabinet] for cabinet in scope))
        fits, missing = _fit_test(ledger, request, scope), _missing_nodes(ledger, request, scope)
        best = min(best, _first_fitting_departure(ledger, names, best, fits, missing))
    return best


def _fit_test(ledger: LedgerState, request: PlacementRequest, scope: range) -> Callable[[], bool]:
    def fits() -> bool:
        allowed = AffinityFilter(ledger, request)
        return not allowed.is_unsatisfiable and constrained.choose_in_scope(ledger, request, scope, allowed) is not None

    return fits


def _missing_nodes(ledger: LedgerState, request: PlacementRequest, scope: range) -> int:
    """How many whole nodes these cabinets lack for the request."""
    wanted = request.spares + (request.nodes if request.npus_per_node == ledger.shape.npus else 0)
    whole = ledger.index.whole
    return wanted - sum([whole[cabinet].bit_count() for cabinet in scope]) if wanted else 0


def _ready_times(ledger: LedgerState, request: PlacementRequest) -> list[float]:
    """For each node, a time before which it has no room for a member: when its last tenant leaves or, for parts, its
    first."""
    shape, index = ledger.shape, ledger.index
    nodes, last = shape.nodes, request.npus_per_node == shape.npus
    offsets = index.offsets
    until = [0.0] * shape.all_nodes if last else [0.0 if free >= request.npus_per_node else inf for free in index.free]
    for allocation in ledger.allocations.values():
        end, place = allocation.request.lease_end, allocation.place
        for cabinet, mask in place.whole + place.spares if place.spares else place.whole:
            base = cabinet * nodes
            for offset in offsets(mask):
                until[base + offset] = end  # a whole node has one holder
        for node, _ in place.parts:
            if until[node] < end if last else until[node] > end:
                until[node] = end
    down = -1
    for _ in range(index.up.count(False)):
        down = index.up.index(False, down + 1)
        until[down] = inf
    for node in (*request.excluded_nodes, *(index.faulty_dies if last else ())):
        until[node] = inf
    return until


def _first_fitting_departure(
    ledger: LedgerState, names: Iterable[str], before: float, fits: Callable[[], bool], missing: int
) -> float:
    """The first moment at which it fits as these leave; infinite if not before `before`. Searches in growing strides,
    then by bisection.

    Nothing is tried until as many nodes have been given back as are `missing`.
    """
    ends = ((ledger.allocations[name].request.lease_end, name) for name in names)
    leaving = sorted((end, name) for end, name in ends if end < before)
    low, high = (
        0,
        len(leaving),
    )  # it does not fit when the first `low` have left, and if at all, then with the first `high`
    with trial(ledger) as released:
        while low < high and missing > (released_nodes := _nodes_max(ledger.allocations[leaving[low][1]].request)):
            released(leaving[low][1])
            missing -= released_nodes
            low += 1
        step = 1
        while low < high:
            reach = min(low + step, high)
            for _, name in leaving[low:reach]:
                released(name)
            if not fits():
                low, step = reach, step * 2
                continue
            if reach == low + 1:
                return leaving[low][0]
            for _, name in reversed(leaving[low:reach]):
                released.undo(name)
            high, step = reach, max(1, (reach - low) // 2)
    return inf


def _nodes_max(request: PlacementRequest) -> int:
    """The most nodes on which an allocation can hold anything."""
    return request.nodes + request.spares
