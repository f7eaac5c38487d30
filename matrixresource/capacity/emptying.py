"""Which nodes of a domain to empty: branch and bound over nodes, by the NPUs of everybody who would have to go.

A gang counts once however many of its nodes are emptied, and whole even if only one of them is wanted. The bound
spreads each allocation's NPUs over its nodes in the domain, which no choice of nodes can undercut.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Ledger

Holders = dict[int, dict[str, int]]
MANY = 32  # nodes short, from which on the cheapest are taken all at once and nothing is proven


def holders(ledger: Ledger, cabinets: Container[int]) -> Holders:
    """By node of these cabinets: who holds which dies there, spares included."""
    shape, index = ledger.shape, ledger.index
    found: Holders = {}
    wanted = range(shape.all_cabinets)
    names = {name for cabinet in wanted if cabinet in cabinets for name in ledger.tenants[cabinet]}
    for name in names:
        place = ledger.held[name].place
        for cabinet, mask in (*place.whole, *place.spares):
            if cabinet in cabinets:
                for offset in index.offsets(mask):
                    found.setdefault(cabinet * shape.nodes + offset, {})[name] = shape.dies
        for node, dies in place.parts:
            if node // shape.nodes in cabinets:
                found.setdefault(node, {})[name] = dies
    return found


class Emptying:
    """One domain: `size` nodes from `first` on, of which `wanted` are to be free."""

    def __init__(self, ledger: Ledger, first: int, size: int, wanted: int) -> None:
        index, nodes = ledger.index, ledger.shape.nodes
        cabinets = range(first // nodes, (first + size) // nodes)
        here = holders(ledger, cabinets)
        self.owners = {node: frozenset(names) for node, names in here.items() if index.up[node]}
        self.npus = {name: ledger.held[name].wish.npus for names in self.owners.values() for name in names}
        spread = dict.fromkeys(self.npus, 0)
        for names in self.owners.values():
            for name in names:
                spread[name] += 1
        self.share = {name: npus / spread[name] for name, npus in self.npus.items()}
        self.short = wanted - sum(index.whole[cabinet].bit_count() for cabinet in cabinets)
        self.possible = 0 < self.short <= len(self.owners)
        self.shares = {node: sum(map(self.share.__getitem__, names)) for node, names in self.owners.items()}
        self.least = sum(sorted(self.shares.values())[: self.short])

    def search(self, below: float, effort: int) -> tuple[frozenset[str], float, bool]:
        """(who goes, their NPUs, whether the effort sufficed to prove it); infinite when nothing is below `below`."""
        self.best, self.cost, self.left = frozenset[str](), below, effort
        self._branch(frozenset(), 0.0, self.owners)
        return self.best, self.cost if self.best else float("inf"), self.left > 0

    def _branch(self, names: frozenset[str], cost: float, waiting: dict[int, frozenset[str]]) -> None:
        """`waiting` are the nodes still to decide on."""
        self.left -= 1
        emptied = sum(owners <= names for owners in self.owners.values()) if names else 0
        short = self.short - emptied
        if short <= 0:
            if cost < self.cost:
                self.best, self.cost = names, cost
            return
        if self.left <= 0 and self.best:
            return
        share = self.share
        further = {node: owners - names for node, owners in waiting.items() if not owners <= names}
        bounds = sorted((sum(map(share.__getitem__, owners)), node) for node, owners in further.items())
        if len(bounds) < short or cost + sum(bound for bound, _ in bounds[:short]) >= self.cost:
            return
        if short > MANY:
            everybody = names.union(*(further[node] for _, node in bounds[:short]))
            self.best, self.cost, self.left = everybody, self._npus(everybody), 0
            return
        node = min(bounds[: short + 4], key=lambda entry: (self._npus(further[entry[1]]), entry))[1]
        self._branch(names | further[node], cost + self._npus(further[node]), waiting)
        self._branch(names, cost, {n: owners for n, owners in waiting.items() if n != node})

    def _npus(self, names: frozenset[str]) -> float:
        return sum(map(self.npus.__getitem__, names))
