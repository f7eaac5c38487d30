"""Emptying nodes: where the tenants of a set of nodes could go, with the fewest NPUs moved.

Tenants elsewhere may have to make room in turn (a chain). The search branches over the target of each tenant and stops
at the cost of the best solution so far. On machines of more than `WIDE_NODES` nodes only the domains with the most free
nodes are considered, and tenants move only to nodes in use, or to whole ones in the fullest cabinets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import combinations
from math import comb

from matrixresource.scheduler.model.bitmasks import low_bits, part_dies
from matrixresource.scheduler.model.free_capacity_index import EVEN
from matrixresource.scheduler.model.placement_arithmetic import has_npus
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState

CHAIN_MAX = 3  # the most tenants that may make room for one another
DIRECT_STEPS = 100  # in the first steps nobody makes room for anybody
CHEAPEST_NODES = 14  # the number of nodes in use considered for a gang that may be anywhere
SETS_MAX = 4000  # sets of nodes considered in one domain
WIDE_NODES = 2048
DOMAINS_MAX = 32  # domains considered on a wide machine
TARGETS_MAX = 256


class Fragment:
    """What an allocation has on one node. There is one object for each, so objects are compared by identity."""

    __slots__ = ("dies", "name", "node", "npus")

    def __init__(self, name: str, node: int, dies: int, npus: float) -> None:
        self.name, self.node, self.dies, self.npus = name, node, dies, npus


@dataclass
class EvacuationSearch:
    """The state of one search: dies free by node, fragments by node and by name, what has moved where."""

    ledger: LedgerState
    dies: list[int]
    fragments: dict[int, list[Fragment]]
    targets: list[int]  # nodes that fragments may move to
    sequential: bool = False
    chain: int = CHAIN_MAX
    fragments_of: dict[str, list[Fragment]] = field(default_factory=dict)
    immovable: set[str] = field(default_factory=set)
    reserved: frozenset[int] = frozenset()
    steps: int = 0
    best_cost: float = float("inf")
    best_solution: tuple[frozenset[int], dict[Fragment, int]] | None = None


def fragments_by_node(ledger: LedgerState) -> dict[int, list[Fragment]]:
    """Every fragment by node, with the dies that are allocatable once it is gone; spares, sockets and memory stay."""
    found: dict[int, list[Fragment]] = {}
    shape, index = ledger.shape, ledger.index
    for name, allocation in ledger.allocations.items():
        for cabinet, mask in allocation.place.whole:
            for offset in index.offsets(mask):
                node = cabinet * shape.nodes + offset
                found.setdefault(node, []).append(
                    Fragment(name, node, shape.dies & ~index.faulty_dies.get(node, 0), shape.npus)
                )
        for node, dies in allocation.place.parts:
            found.setdefault(node, []).append(
                Fragment(name, node, dies & ~index.faulty_dies.get(node, 0), allocation.request.npus_per_node)
            )
    return found


def immovable_allocations(ledger: LedgerState) -> set[str]:
    """Allocations that no search moves: those with spares, cells, affinity or anti-affinity, and those that such rules
    name."""
    found: set[str] = set()
    for name, allocation in ledger.allocations.items():
        request = allocation.request
        if request.unconstrained:
            continue
        if request.spread or request.anti_affinity or request.affinity or request.spares or request.cabinet_block > 1:
            found.add(name)
        for rule in (request.anti_affinity, request.affinity):
            found.update(rule.others if rule else ())
    return found


def candidate_sets(
    ledger: LedgerState,
    request: PlacementRequest,
    fragments: dict[int, list[Fragment]],
    immovable: set[str],
    steps: int,
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(NPUs that must leave, nodes) for each set the gang could have, the cheapest first; without nodes that hold
    spares or allocations in `immovable`, which must stay."""
    shape, index = ledger.shape, ledger.index
    size = shape.size_of(request.required_domain)
    if request.cabinet_block > 1 and request.nodes <= shape.nodes:
        size = shape.nodes  # elsewhere a set of cells is rarely among the cheapest sets of nodes
    excluded = set(index.faulty_dies)
    for allocation in ledger.allocations.values():
        excluded.update(c * shape.nodes + o for c, mask in allocation.place.spares for o in index.offsets(mask))
    loads = [0.0] * shape.all_nodes
    for node, node_fragments in fragments.items():
        for fragment in node_fragments:
            loads[node] += fragment.npus
            if fragment.name in immovable:
                excluded.add(node)
    found: list[tuple[float, tuple[int, ...]]] = []
    most = min(SETS_MAX, 8 * steps)
    for first in _domain_starts(ledger, size):
        usable = [node for node in range(first, first + size) if index.up[node] and node not in excluded]
        if len(usable) < request.nodes:
            continue
        usable.sort(key=loads.__getitem__)
        if size == shape.nodes:
            found += [(sum([loads[n] for n in nodes]), nodes) for nodes in combinations(usable, request.nodes)]
            continue
        free = [node for node in usable if not loads[node]][: request.nodes]
        short = request.nodes - len(free)
        used = [node for node in usable if loads[node]]
        within = next((n for n in range(CHEAPEST_NODES, short, -1) if comb(n, short) <= most), short)
        found += [(sum([loads[n] for n in nodes]), (*free, *nodes)) for nodes in combinations(used[:within], short)]
    blocks = [
        (size, each)
        for size, each in ((shape.nodes, request.cabinet_block), (shape.nodes_per_supernode, request.supernode_block))
        if each > 1
    ]
    yield from (entry for entry in sorted(found) if all(in_blocks(entry[1], size, each) for size, each in blocks))


def in_blocks(nodes: tuple[int, ...], size: int, each: int) -> bool:
    """Whether the nodes in each domain of `size` are a multiple of `each`."""
    counts = Counter(node // size for node in nodes)
    return not any(count % each for count in counts.values())


def _domain_starts(ledger: LedgerState, size: int) -> list[int]:
    """The first nodes of the domains to consider; on wide machines those with the most free nodes."""
    shape, index = ledger.shape, ledger.index
    starts = list(range(0, shape.all_nodes, size))
    if shape.all_nodes <= WIDE_NODES or len(starts) <= DOMAINS_MAX:
        return starts
    if size == shape.nodes:
        return nlargest(DOMAINS_MAX, starts, key=lambda first: index.whole[first // size].bit_count())
    return nlargest(DOMAINS_MAX, starts, key=lambda first: index.whole_counts[first // size])


def candidate_targets(ledger: LedgerState) -> list[int]:
    """Nodes that tenants may move to: all, or on a wide machine those in use with the least room."""
    shape, index = ledger.shape, ledger.index
    if shape.all_nodes <= WIDE_NODES:
        return list(range(shape.all_nodes))
    found: list[int] = []
    for nodes in (*index.nodes_with_free_die[:1], *index.nodes_by_free_npus[1:]):
        found += low_bits(nodes, TARGETS_MAX // shape.npus)
    for count in range(1, shape.nodes + 1):
        for supernode in low_bits(index.supernodes_by_cabinet[count], 4):
            cabinet = supernode * shape.cabinets + low_bits(index.cabinets_by_whole[supernode][count], 1)[0]
            found += [cabinet * shape.nodes + offset for offset in index.offsets(index.whole[cabinet])]
    return sorted(set(found))


def search_targets(
    search: EvacuationSearch, waiting: list[Fragment], cost: float, moved: dict[Fragment, int], steps: int, depth: int
) -> None:
    """Find a node for each waiting fragment; every complete solution cheaper than the best replaces it."""
    search.steps += 1
    if search.steps > steps or cost + sum(fragment.npus for fragment in waiting) >= search.best_cost:
        return
    if not waiting:
        if not search.sequential or len(executable_order(search.ledger, moved)) == len(moved):
            search.best_cost, search.best_solution = cost, (search.reserved, dict(moved))
        return
    fragment, *rest = waiting
    for node in _fitting_targets(search, fragment, moved):
        bits = part_dies(search.dies[node], fragment.npus)
        search.dies[node] &= ~bits
        moved[fragment] = node
        search_targets(search, rest, cost + fragment.npus, moved, steps, depth)
        del moved[fragment]
        search.dies[node] |= bits
    if depth >= search.chain:
        return
    for node, leaving in _chain_targets(search, fragment, moved, rest):
        extra = sum(other.npus for other in leaving)
        if cost + fragment.npus + extra + sum(other.npus for other in rest) >= search.best_cost:
            continue
        before = search.dies[node]
        for other in leaving:
            search.dies[node] |= other.dies
        bits = part_dies(search.dies[node], fragment.npus)
        search.dies[node] &= ~bits
        moved[fragment] = node
        search_targets(
            search, sorted([*rest, *leaving], key=lambda p: -p.npus), cost + fragment.npus, moved, steps, depth + 1
        )
        del moved[fragment]
        search.dies[node] = before


def _fitting_targets(search: EvacuationSearch, fragment: Fragment, moved: dict[Fragment, int]) -> list[int]:
    """Nodes where a fragment fits now, the tightest first; of indistinguishable ones only one."""
    seen: set[tuple[int, int, bool]] = set()
    found: list[tuple[int, int]] = []
    shape, index = search.ledger.shape, search.ledger.index
    for node in search.targets:
        dies = search.dies[node]
        if not dies or node in search.reserved or not index.up[node] or not has_npus(dies, fragment.npus):
            continue
        signature = (
            dies.bit_count(),
            (dies & dies >> 1 & EVEN).bit_count(),
            node // shape.nodes == fragment.node // shape.nodes,
        )
        if signature not in seen and _can_move_to(search, fragment, node, moved):
            seen.add(signature)
            found.append((dies.bit_count(), node))
    return [node for _, node in sorted(found)]


def _chain_targets(
    search: EvacuationSearch, fragment: Fragment, moved: dict[Fragment, int], waiting: list[Fragment]
) -> list[tuple[int, list[Fragment]]]:
    """(node, fragments that leave it) where a few small ones make room for a larger one, the cheapest first."""
    found: list[tuple[float, int, list[Fragment]]] = []
    index = search.ledger.index
    for node in search.targets:
        fragments = search.fragments.get(node, ())
        if (
            not fragments
            or node in search.reserved
            or not index.up[node]
            or not _can_move_to(search, fragment, node, moved)
        ):
            continue
        staying = [p for p in fragments if p not in moved and p not in waiting and p.npus < fragment.npus]
        for count in (1, 2, 3):
            for leaving in combinations(staying, count):
                dies = search.dies[node]
                for other in leaving:
                    dies |= other.dies
                if has_npus(dies, fragment.npus):
                    found.append((sum(other.npus for other in leaving), node, list(leaving)))
    found.sort(key=lambda entry: (entry[0], entry[1]))
    seen: set[tuple[float, tuple[float, ...], int]] = set()
    different = []
    for cost, node, group in found:
        signature = (cost, tuple(sorted(other.npus for other in group)), search.dies[node].bit_count())
        if signature not in seen:
            seen.add(signature)
            different.append((node, group))
    return different[:12]


def _can_move_to(search: EvacuationSearch, fragment: Fragment, node: int, moved: dict[Fragment, int]) -> bool:
    """A gang's fragments stay on different nodes, and inside the domain that its others are in."""
    request, shape = search.ledger.allocations[fragment.name].request, search.ledger.shape
    if node in request.excluded_nodes or fragment.name in search.immovable:
        return False
    if request.nodes == 1:
        return True
    own = search.fragments_of[fragment.name]
    others = [moved.get(other, other.node) for other in own if other != fragment]
    if node in others:
        return False
    if not request.required_domain:
        return request.supernode_block == 1
    size = shape.size_of(request.required_domain)
    settled = [moved.get(other) for other in own if other in moved]
    staying = [other for other in others if other not in search.reserved]
    return all(other is not None and other // size == node // size for other in settled) and (
        request.required_domain != "cabinet"
        or all(other // size == node // size for other in staying if other is not None)
    )


def executable_order(ledger: LedgerState, moved: dict[Fragment, int]) -> list[Fragment]:
    """The fragments in an order in which each finds room on its new node; if there is none, fewer than all of them."""
    dies = {node: ledger.index.dies[node] for fragment, target in moved.items() for node in (fragment.node, target)}
    waiting, order = list(moved), list[Fragment]()
    while waiting:
        at_home = {(fragment.name, fragment.node) for fragment in waiting}
        ready = (p for p in waiting if has_npus(dies[moved[p]], p.npus) and (p.name, moved[p]) not in at_home)
        fragment = next(ready, None)
        if fragment is None:
            break
        target = moved[fragment]
        dies[target] &= ~part_dies(dies[target], fragment.npus)
        dies[fragment.node] |= fragment.dies
        waiting.remove(fragment)
        order.append(fragment)
    return order
