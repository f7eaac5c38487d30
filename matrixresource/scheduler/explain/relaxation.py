"""The smallest change of the request itself that makes it fit: fewer nodes, or one constraint relaxed.

A constraint is relaxed as little as possible: a level is raised to the next, a spread allows only as many more nodes as
needed, spares drop to what is available, and of several affinities or anti-affinities the fewest are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import lcm

from matrixresource.scheduler.model.request import DomainConstraint, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.choose import choose
from matrixresource.scheduler.placement.named_memory import memory_shortages

EXHAUSTIVE_MAX = 8  # numbers up to this are tried one by one


def most_nodes(ledger: LedgerState, request: PlacementRequest) -> int:
    """The most nodes, in whole blocks and cells, that fit under the same constraints; 0 for none."""
    step = lcm(request.supernode_block, request.cabinet_block)
    return step * _largest_fitting(
        (request.nodes - 1) // step, lambda count: _fits(ledger, request.with_nodes(count * step))
    )


def most_pools(ledger: LedgerState, request: PlacementRequest) -> PlacementRequest | None:
    """A request for sockets and memory alone, with the amounts available where most of it fits; None for nothing."""
    shape, index = ledger.shape, ledger.index
    if request.mem_by_node:
        short = memory_shortages(index, request)
        left = ((node, short[node][1] if node in short else gib) for node, gib in request.mem_by_node)
        by_node = tuple((node, gib) for node, gib in left if gib)
        return replace(request, mem=sum(gib for _, gib in by_node), mem_by_node=by_node) if by_node else None
    size = shape.size_of(request.required_domain)
    best: tuple[float, int, int] = (0.0, 0, 0)
    for first in range(0, shape.all_nodes, size):
        here = [node for node in range(first, first + size) if index.up[node]]
        cpus = min(request.cpus, sum(index.cpus[node] for node in here))
        mem = min(request.mem, sum(index.mem[node] for node in here))
        best = max(best, (cpus / max(request.cpus, 1) + mem / max(request.mem, 1), cpus, mem))
    less = replace(request, cpus=best[1], mem=best[2])
    return less if best[0] and _fits(ledger, less) else None


def relaxations(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[str, str, PlacementRequest]]:
    """(constraint, the value it would need, the changed request) for each single constraint whose relaxation
    suffices."""
    for rule, steps in (
        ("within", _relaxed_levels(ledger, request)),
        ("spread", _relaxed_spreads(ledger, request)),
        ("spares", _fewer_spares(ledger, request)),
        ("block", iter([("1", replace(request, supernode_block=1))] if request.supernode_block > 1 else [])),
        ("cell", iter([("1", replace(request, cabinet_block=1))] if request.cabinet_block > 1 else [])),
        ("anti_affinity", _without_others(request, "anti_affinity")),
        ("affinity", _without_others(request, "affinity")),
        ("avoid", iter([("", replace(request, excluded_nodes=frozenset()))] if request.excluded_nodes else [])),
    ):
        for to, changed in steps:
            if _fits(ledger, changed):
                yield rule, to, changed
                break


def _fits(ledger: LedgerState, request: PlacementRequest) -> bool:
    return choose(ledger, request) is not None


def _largest_fitting(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `high` that fits, 0 for none. Beyond `EXHAUSTIVE_MAX` this assumes that less fits
    whenever more does."""
    if high <= EXHAUSTIVE_MAX:
        return next((count for count in range(high, 0, -1) if fits(count)), 0)
    low, high = 0, high + 1
    while low < high - 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _relaxed_levels(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if request.required_domain == "cabinet":
        yield "supernode", replace(request, required_domain="supernode")
    if request.required_domain == "cabinet" or (request.required_domain and ledger.shape.supernodes > 1):
        yield "", replace(request, required_domain="")


def _relaxed_spreads(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if request.spread is None or not request.spread.required:
        return
    over, most = request.spread.over, request.spread.most
    high = min(request.nodes, ledger.shape.size_of(over))

    def spread(allowed: int) -> PlacementRequest:
        return replace(request, spread=DomainConstraint(over, allowed))

    if high > most:
        fewer = _largest_fitting(high - most, lambda less: _fits(ledger, spread(high - less + 1)))
        if fewer:
            yield str(high - fewer + 1), spread(high - fewer + 1)
    yield "", replace(request, spread=None)


def _fewer_spares(ledger: LedgerState, request: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if request.spares:
        left = _largest_fitting(request.spares - 1, lambda count: _fits(ledger, replace(request, spares=count)))
        yield str(left), replace(request, spares=left)


def _without_others(request: PlacementRequest, key: str) -> Iterator[tuple[str, PlacementRequest]]:
    """The allocations kept in the rule, by name: from all but one down to none."""
    rule: DomainConstraint | None = getattr(request, key)
    if rule is None or not rule.required:
        return
    for kept in range(len(rule.others) - 1, 0, -1) if len(rule.others) <= EXHAUSTIVE_MAX else ():
        for others in combinations(rule.others, kept):
            yield ",".join(others), replace(request, **{key: replace(rule, others=others)})  # type: ignore[arg-type]
    yield "", replace(request, **{key: None})  # type: ignore[arg-type]
