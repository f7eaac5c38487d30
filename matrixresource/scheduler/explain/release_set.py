"""Whose release would make room: the allocations with the fewest NPUs without which a request fits.

Three searches, by what decides whether it fits. For whole nodes without further constraints: which nodes of one domain
to empty, by branch and bound. For a part of a node: which tenants of one node leave. For anything else: sets of
allocations in order of their NPUs. Each says whether its answer is `exact`: that no fewer NPUs would do. Where the
machine is too large or the effort runs out, the set is minimal (none of its members could stay), but there may be a
smaller one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, lcm

from matrixresource.scheduler.changes.trial import Trial, trial
from matrixresource.scheduler.defragment.search import WIDE_NODES
from matrixresource.scheduler.explain.branch_and_bound import (
    DomainEvacuation,
    Holders,
    greedy_evacuation,
    holders_by_node,
)
from matrixresource.scheduler.model.bitmasks import low_bits
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.placement_arithmetic import has_npus
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.choose import choose
from matrixresource.scheduler.placement.emptiest_domains import emptiest_domains

DOMAINS_TRIED = 16
NODES_TRIED = 64
GREEDY_NODES_MIN = 16  # in domains of this many nodes, the cheapest are taken greedily unless the effort is larger
TRIAL_STEPS = 4  # the steps that a trial of one set of allocations counts for
EXHAUSTIVE_ALLOCATIONS_MAX = 128  # the most allocations for which all sets are tried


@dataclass(frozen=True)
class ReleaseSet:
    """Allocations by name, their NPUs, and whether no smaller set is proven to exist."""

    names: tuple[str, ...]
    npus: float
    exact: bool


def find_release_set(ledger: LedgerState, request: PlacementRequest, effort: int) -> ReleaseSet | None:
    """The cheapest release found for a refused request; None if it would not fit on an empty machine either.

    `effort` bounds the steps of each search. Nothing is changed.
    """
    found: ReleaseSet | None = None
    if not fits_empty_cluster(ledger.shape, request):
        return None
    if size := whole_node_domain_size(ledger, request):
        found = _release_in_domain(ledger, request, size, effort)
    elif request.unconstrained and request.nodes == 1:
        found = _release_on_one_node(ledger, request)
    with trial(ledger) as released:
        if found is not None and found.exact and released.fits_without(found.names, request):
            return found
        if found is not None and (
            needed := _release_until_fitting(ledger, request, [*found.names], len(found.names), released, inf)
        ):
            return ReleaseSet(
                tuple(sorted(needed)), sum(allocation.request.npus for allocation in released.released.values()), False
            )
        released.restore()
        return _search_sets(ledger, request, effort, released)


def whole_node_domain_size(ledger: LedgerState, request: PlacementRequest) -> int:
    """The size of the domains in which the request fits as soon as enough nodes are entirely free; 0 if other
    constraints decide."""
    shape = ledger.shape
    ruled = (
        request.spread
        or request.anti_affinity
        or request.affinity
        or request.cpus
        or request.mem
        or request.cabinet_block > 1
    )
    if ruled or request.npus_per_node != shape.npus or not request.nodes or request.nodes % request.supernode_block:
        return 0
    if request.required_domain:
        return shape.size_of(request.required_domain)
    if shape.supernodes == 1 or (request.supernode_block == 1 and not request.spares):
        return shape.all_nodes
    return 0


def fits_empty_cluster(shape: ClusterShape, request: PlacementRequest) -> bool:
    """Whether its own numbers fit an empty machine of this shape."""
    sizes = {over: shape.size_of(over) for over in ("node", "cabinet", "supernode", "")}
    size = sizes[request.required_domain]
    step = lcm(request.supernode_block, request.cabinet_block)
    if request.nodes + request.spares > size or request.nodes % step or request.npus_per_node > shape.npus:
        return False
    spread = request.spread if request.spread is not None and request.spread.required else None
    most = {over: min(sizes[over], spread.most) if spread and spread.over == over else sizes[over] for over in sizes}
    cabinets = max(1, min(size, shape.nodes_per_supernode) // shape.nodes)
    together = (
        min(most["supernode"], cabinets * (most["cabinet"] // request.cabinet_block * request.cabinet_block))
        // step
        * step
    )
    return most["node"] > 0 and request.nodes <= max(1, size // shape.nodes_per_supernode) * together


# ---- whole nodes


def _release_in_domain(ledger: LedgerState, request: PlacementRequest, size: int, effort: int) -> ReleaseSet | None:
    shape = ledger.shape
    if size > GREEDY_NODES_MIN and effort < size:
        return _release_greedily(ledger, request, size)
    starts = [0] if size == shape.all_nodes else emptiest_domains(ledger, size, DOMAINS_TRIED)
    here = holders_by_node(
        ledger, {c for first in starts for c in range(first // shape.nodes, (first + size) // shape.nodes)}
    )
    domains = [DomainEvacuation(ledger, first, size, request.nodes + request.spares, here) for first in starts]
    domains = sorted((each for each in domains if each.is_possible), key=lambda each: each.lower_bound)
    best: frozenset[str] = frozenset()
    cost, exact = inf, len(starts) * size == shape.all_nodes
    for domain in domains:
        if domain.lower_bound >= cost:
            break
        found, npus, proven = domain.search(cost, effort)
        exact = exact and proven
        if npus < cost:
            best, cost = found, npus
    return ReleaseSet(tuple(sorted(best)), cost, exact) if best else None


def _release_greedily(ledger: LedgerState, request: PlacementRequest, size: int) -> ReleaseSet | None:
    shape = ledger.shape
    if shape.all_nodes > WIDE_NODES and request.nodes + request.spares <= shape.nodes_per_supernode:
        size = min(size, shape.nodes_per_supernode)  # a very large machine is not searched entirely
    starts = [0] if size == shape.all_nodes else emptiest_domains(ledger, size, 2)
    found = []
    for first in starts:
        names, bound = greedy_evacuation(ledger, request, first, size)
        cost = npus_of(ledger, names)
        found.append((cost, tuple(sorted(names)), cost <= bound + 1e-9 and size == shape.all_nodes))
    cost, best, exact = min(found)
    return ReleaseSet(best, cost, exact) if best else None


# ---- a part of a node


def _release_on_one_node(ledger: LedgerState, request: PlacementRequest) -> ReleaseSet | None:
    index, shape = ledger.index, ledger.shape
    nodes: list[int] = []
    for free in range(shape.npus - 1, -1, -1):
        nodes += low_bits(index.nodes_by_free_npus[free] | index.nodes_with_free_die[free], NODES_TRIED)
    if len(nodes) < NODES_TRIED:
        started = set(nodes)
        used = (n for n in range(shape.all_nodes) if not index.free[n] and n not in started)
        nodes += [node for node, _ in zip(used, range(NODES_TRIED - len(nodes)), strict=False)]
    nodes = nodes[:NODES_TRIED]
    in_use = sum(0 <= free < shape.npus for free in index.free) if shape.all_nodes <= NODES_TRIED else inf
    here = holders_by_node(ledger, {node // shape.nodes for node in nodes})
    best: tuple[str, ...] = ()
    cost = inf
    for node in nodes:
        if (request.npus_per_node - index.free[node]) / 2 >= cost:
            continue
        for npus, names in subsets_by_npus(ledger, sorted(here.get(node, {})), cost):
            if npus >= cost:
                break
            if _has_room_without(index, here, node, names, request.npus_per_node):
                best, cost = names, npus
                break
    return ReleaseSet(tuple(sorted(best)), cost, len(nodes) == in_use) if best else None


def _has_room_without(
    index: FreeCapacityIndex, here: Holders, node: int, names: tuple[str, ...], npus_per_node: float
) -> bool:
    dies = index.dies[node]
    for name in names:
        dies |= here[node][name] & ~index.faulty_dies.get(node, 0)
    return has_npus(dies, npus_per_node)


# ---- any rules


def subsets_by_npus(ledger: LedgerState, names: list[str], below: float) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Every set of these allocations with fewer NPUs than `below`, in order of NPUs."""
    sizes = {name: ledger.allocations[name].request.npus for name in names}
    order = sorted(names, key=lambda name: (sizes[name], name))
    waiting: list[tuple[float, tuple[int, ...]]] = [(sizes[order[0]], (0,))] if order else []
    while waiting:
        cost, places = heapq.heappop(waiting)
        if cost >= below:
            return
        yield cost, tuple(order[place] for place in places)
        last = places[-1]
        if last + 1 < len(order):
            following = sizes[order[last + 1]]
            heapq.heappush(waiting, (cost + following, (*places, last + 1)))
            heapq.heappush(waiting, (cost + following - sizes[order[last]], (*places[:-1], last + 1)))


def _search_sets(ledger: LedgerState, request: PlacementRequest, effort: int, released: Trial) -> ReleaseSet | None:
    """First a minimal set found by domain; then smaller ones, as far as the effort allows."""
    best: list[str] | None = None
    cost = inf
    crowded = len(ledger.allocations) > EXHAUSTIVE_ALLOCATIONS_MAX
    for likely in (_cheapest_tenants, _smallest_tenants, _all_tenants):
        for names, stride in likely(ledger, request):
            chosen = _release_until_fitting(ledger, request, names, stride, released, effort if crowded else inf)
            released.restore()
            if chosen is not None and (npus := npus_of(ledger, chosen)) < cost:
                best, cost = chosen, npus
        if best is not None:
            break
    if best is None:
        return None
    for tried, (npus, some) in enumerate(subsets_by_npus(ledger, [] if crowded else list(ledger.allocations), cost)):
        if tried >= effort // TRIAL_STEPS:
            return ReleaseSet(tuple(sorted(best)), cost, False)
        if released.fits_without(some, request):
            return ReleaseSet(tuple(sorted(some)), npus, True)
    return ReleaseSet(tuple(sorted(best)), cost, not crowded)


def _candidate_domains(ledger: LedgerState, request: PlacementRequest) -> list[tuple[int, int]]:
    """(first node, size) of a few domains close to fitting it; the last one is the largest it may span."""
    shape = ledger.shape
    size = shape.nodes if request.required_domain == "cabinet" else shape.nodes_per_supernode
    found = [(first, size) for first in emptiest_domains(ledger, size, 2)]
    near = request.nodes + request.spares <= size and shape.all_nodes > WIDE_NODES
    return found if request.required_domain or near or size == shape.all_nodes else [*found, (0, shape.all_nodes)]


def _cheapest_tenants(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[list[str], int]]:
    """(tenants of the cheapest nodes of a domain, how many to release at a time)."""
    for first, size in _candidate_domains(ledger, request):
        names, _ = greedy_evacuation(ledger, request, first, size)
        yield sorted(names), max(1, len(names))


def _smallest_tenants(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[list[str], int]]:
    """(tenants of a domain, the smallest first, how many to release at a time)."""
    shape = ledger.shape
    for first, size in _candidate_domains(ledger, request):
        cabinets = range(first // shape.nodes, (first + size) // shape.nodes)
        here = {name for cabinet in cabinets for name in ledger.tenants[cabinet]}
        yield sorted(here, key=lambda name: (ledger.allocations[name].request.npus, name)), 2


def _all_tenants(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[list[str], int]]:
    """All allocations at once, if there are few."""
    if len(ledger.allocations) <= EXHAUSTIVE_ALLOCATIONS_MAX:
        yield sorted(ledger.allocations), len(ledger.allocations)


def _release_until_fitting(
    ledger: LedgerState, request: PlacementRequest, names: list[str], stride: int, released: Trial, tests: float
) -> list[str] | None:
    """Release the first ones, in growing strides, until it fits; return them without those that could stay."""
    done = 0
    while done < len(names):
        for name in names[done : done + stride]:
            released(name)
        done, stride = done + stride, stride * 2
        if choose(ledger, request) is not None:
            return released.minimal_subset(request, tests)
    return None


def npus_of(ledger: LedgerState, names: Iterable[str]) -> float:
    return sum(ledger.allocations[name].request.npus for name in names)
