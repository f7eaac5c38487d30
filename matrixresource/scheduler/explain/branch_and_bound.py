"""Which nodes of a domain to empty: branch and bound over nodes, minimising the NPUs of all allocations that must
leave.

A gang counts once however many of its nodes are emptied, and in full even if only one of them is needed. The bound
divides each allocation's NPUs over its nodes in the domain, which no choice of nodes can undercut.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.affinity import AffinityFilter

Holders = dict[int, dict[str, int]]


def holders_by_node(ledger: LedgerState, cabinets: range | set[int]) -> Holders:
    """For each node of these cabinets, who holds which dies, spares included."""
    shape, index = ledger.shape, ledger.index
    found: Holders = {}
    names = {name for cabinet in cabinets for name in ledger.tenants[cabinet]}
    for name in names:
        place = ledger.allocations[name].place
        for cabinet, mask in (*place.whole, *place.spares):
            if cabinet in cabinets:
                for offset in index.offsets(mask):
                    found.setdefault(cabinet * shape.nodes + offset, {})[name] = shape.dies
        for node, dies in place.parts:
            if node // shape.nodes in cabinets:
                found.setdefault(node, {})[name] = dies
    return found


class DomainEvacuation:
    """One domain: `size` nodes from `first` on, of which `wanted` are to be free. `here` includes at least its
    holders."""

    def __init__(self, ledger: LedgerState, first: int, size: int, wanted: int, here: Holders) -> None:
        index, nodes = ledger.index, ledger.shape.nodes
        cabinets = range(first // nodes, (first + size) // nodes)
        self.owners: dict[int, frozenset[str]] = {}
        spread: dict[str, int] = {}
        for node in range(first, first + size):
            if node in here and index.up[node] and node not in index.faulty_dies:
                self.owners[node] = frozenset(here[node])
                for name in here[node]:
                    spread[name] = spread.get(name, 0) + 1
        self.npus = {name: ledger.allocations[name].request.npus for name in spread}
        self.share = {name: npus / spread[name] for name, npus in self.npus.items()}
        self.missing = wanted - sum(index.whole[cabinet].bit_count() for cabinet in cabinets)
        self.is_possible = 0 < self.missing <= len(self.owners)
        self.shares = {node: sum(map(self.share.__getitem__, names)) for node, names in self.owners.items()}
        self.lower_bound = sum(sorted(self.shares.values())[: self.missing])

    def search(self, below: float, effort: int) -> tuple[frozenset[str], float, bool]:
        """(allocations to evict, their NPUs, whether the effort sufficed to prove it optimal); infinite cost if nothing
        is below `below`."""
        self.best, self.best_cost, self.steps_left = frozenset[str](), below, effort
        self._branch(frozenset(), 0.0, self.owners)
        return self.best, self.best_cost if self.best else float("inf"), self.steps_left > 0

    def _branch(self, names: frozenset[str], cost: float, waiting: dict[int, frozenset[str]]) -> None:
        """`waiting` are the nodes not decided yet."""
        self.steps_left -= 1
        further: dict[int, frozenset[str]] = {}
        for node, owners in waiting.items():
            rest = owners - names if names else owners
            if rest:
                further[node] = rest
        short = self.missing - (len(waiting) - len(further))
        if short <= 0:
            if cost < self.best_cost:
                self.best, self.best_cost = names, cost
            return
        if self.steps_left <= 0 and self.best:
            return
        share, shares = self.share, self.shares
        bounds = sorted(
            (shares[node] if len(rest) == len(self.owners[node]) else sum(map(share.__getitem__, rest)), node)
            for node, rest in further.items()
        )
        if len(bounds) < short or cost + sum(bound for bound, _ in bounds[:short]) >= self.best_cost:
            return
        node = min(bounds[: short + 4], key=lambda entry: (self._npus(further[entry[1]]), entry))[1]
        self._branch(names | further[node], cost + self._npus(further[node]), waiting)
        self._branch(names, cost, {n: owners for n, owners in waiting.items() if n != node})

    def _npus(self, names: frozenset[str]) -> float:
        return sum(map(self.npus.__getitem__, names))


def greedy_evacuation(ledger: LedgerState, request: PlacementRequest, first: int, size: int) -> tuple[set[str], float]:
    """(allocations to evict, a lower bound on the NPUs): the cheapest nodes that the constraints allow, without a
    search.

    Considers `size` nodes from `first` on. The bound holds for whole nodes without further constraints.
    """
    index, shape = ledger.index, ledger.shape
    nodes = shape.nodes
    scope = range(first // nodes, (first + size) // nodes)
    allowed = AffinityFilter(ledger, request)
    limit, domain = constrained.spread_limit(index, request.spread)
    costs = [0.0] * size
    parts, offsets, free, low, high = (
        request.npus_per_node < shape.npus,
        index.offsets,
        index.free,
        scope.start,
        scope.stop,
    )
    npus_per_node = request.npus_per_node if parts else inf  # where there is room for a part, nobody has to leave
    for name in set().union(*ledger.tenants[low:high]):
        allocation = ledger.allocations[name]
        place = allocation.place
        here = place.whole + place.spares if place.spares else place.whole
        if len(here) > 1 or (here and here[0][0] not in scope):
            here = [entry for entry in here if low <= entry[0] < high]
        some = [node for node, _ in place.parts if first <= node < first + size and free[node] < npus_per_node]
        count = len(some)
        for _, mask in here:
            count += mask.bit_count()
        if not count:
            continue
        each = allocation.request.npus / count
        for node in some:
            costs[node - first] += each
        for cabinet, mask in here:
            base = cabinet * nodes - first
            for offset in offsets(mask):
                costs[base + offset] += each
    chosen: set[int] = set()
    taken: Counter[int] = Counter()
    wanted, bound = request.nodes + request.spares, 0.0
    ruled, limited, up, broken = bool(allowed), limit < request.nodes, index.up, () if parts else index.faulty_dies
    for node in sorted(range(size), key=costs.__getitem__):
        if not up[first + node] or first + node in broken or (ruled and not allowed(first + node)):
            continue
        if limited:
            home = (first + node) // (nodes * domain)
            if taken[home] >= limit:
                continue
            taken[home] += 1
        chosen.add(node)
        bound += costs[node]
        if len(chosen) == wanted:
            break
    cabinets = {(first + node) // nodes for node in chosen}
    found: set[str] = set()
    for name in set().union(*(ledger.tenants[cabinet] for cabinet in cabinets)):
        place = ledger.allocations[name].place
        mine = [c * nodes + o for c, mask in place.whole + place.spares if c in cabinets for o in offsets(mask)]
        mine += [node for node, _ in place.parts if free[node] < npus_per_node]
        if any(node - first in chosen for node in mine):
            found.add(name)
    return found, bound
