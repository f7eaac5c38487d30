"""The smallest change of a request itself with which it would fit: fewer nodes, or one rule less strict.

A rule gives way as little as it can: a level goes up to the next, a spread allows as many nodes more as it must, spares
are as many as there are, and of several neighbours to keep near or apart from as few as possible are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import lcm
from typing import TYPE_CHECKING

from matrixresource.scheduler.model.request import DomainConstraint, PlacementRequest

if TYPE_CHECKING:
    from matrixresource.scheduler.ledger import Ledger

FEW = 8  # numbers that are tried one by one


def most_nodes(ledger: Ledger, wish: PlacementRequest) -> int:
    """The most nodes, in whole blocks and cells, that fit under the same rules; 0 for none."""
    step = lcm(wish.supernode_block, wish.cabinet_block)
    return step * _most((wish.nodes - 1) // step, lambda count: _fits(ledger, wish.with_nodes(count * step)))


def most_pools(ledger: Ledger, wish: PlacementRequest) -> PlacementRequest | None:
    """A request for sockets and memory alone, with what there is of each where most of it fits; None for nothing."""
    shape, index = ledger.shape, ledger.index
    size = {"cabinet": shape.nodes, "supernode": shape.of_supernode, "": shape.all_nodes}[wish.required_domain]
    best: tuple[float, int, int] = (0.0, 0, 0)
    for first in range(0, shape.all_nodes, size):
        here = [node for node in range(first, first + size) if index.up[node]]
        cpus = min(wish.cpus, sum(index.cpus[node] for node in here))
        mem = min(wish.mem, sum(index.mem[node] for node in here))
        best = max(best, (cpus / max(wish.cpus, 1) + mem / max(wish.mem, 1), cpus, mem))
    less = replace(wish, cpus=best[1], mem=best[2])
    return less if best[0] and _fits(ledger, less) else None


def relaxed(ledger: Ledger, wish: PlacementRequest) -> Iterator[tuple[str, str, PlacementRequest]]:
    """(rule, what it would have to be, the request with it so) for each single rule that can give way far enough."""
    for rule, steps in (
        ("within", _levels(ledger, wish)),
        ("spread", _spreads(ledger, wish)),
        ("spares", _spares(ledger, wish)),
        ("block", iter([("1", replace(wish, supernode_block=1))] if wish.supernode_block > 1 else [])),
        ("cell", iter([("1", replace(wish, cabinet_block=1))] if wish.cabinet_block > 1 else [])),
        ("anti_affinity", _without(wish, "anti_affinity")),
        ("affinity", _without(wish, "affinity")),
        ("avoid", iter([("", replace(wish, excluded_nodes=frozenset()))] if wish.excluded_nodes else [])),
    ):
        for to, changed in steps:
            if _fits(ledger, changed):
                yield rule, to, changed
                break


def _fits(ledger: Ledger, wish: PlacementRequest) -> bool:
    return ledger.choose(wish) is not None


def _most(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `high` that fits, 0 for none; for many, if less always fits when more does."""
    if high <= FEW:
        return next((count for count in range(high, 0, -1) if fits(count)), 0)
    low, high = 0, high + 1
    while low < high - 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _levels(ledger: Ledger, wish: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if wish.required_domain == "cabinet":
        yield "supernode", replace(wish, required_domain="supernode")
    if wish.required_domain == "cabinet" or (wish.required_domain and ledger.shape.supernodes > 1):
        yield "", replace(wish, required_domain="")


def _spreads(ledger: Ledger, wish: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if wish.spread is None or not wish.spread.required:
        return
    over, most = wish.spread.over, wish.spread.most
    domain = {"node": 1, "cabinet": ledger.shape.nodes, "supernode": ledger.shape.of_supernode}[over]
    high = min(wish.nodes, domain)

    def spread(allowed: int) -> PlacementRequest:
        return replace(wish, spread=DomainConstraint(over, allowed))

    if high > most:
        fewer = _most(high - most, lambda less: _fits(ledger, spread(high - less + 1)))
        if fewer:
            yield str(high - fewer + 1), spread(high - fewer + 1)
    yield "", replace(wish, spread=None)


def _spares(ledger: Ledger, wish: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    if wish.spares:
        left = _most(wish.spares - 1, lambda count: _fits(ledger, replace(wish, spares=count)))
        yield str(left), replace(wish, spares=left)


def _without(wish: PlacementRequest, key: str) -> Iterator[tuple[str, PlacementRequest]]:
    """The neighbours that are kept, by name, from all but one down to none."""
    rule: DomainConstraint | None = getattr(wish, key)
    if rule is None or not rule.required:
        return
    for kept in range(len(rule.others) - 1, 0, -1) if len(rule.others) <= FEW else ():
        for others in combinations(rule.others, kept):
            yield ",".join(others), replace(wish, **{key: replace(rule, others=others)})  # type: ignore[arg-type]
    yield "", replace(wish, **{key: None})  # type: ignore[arg-type]
