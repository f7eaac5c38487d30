"""Emptying nodes: where the tenants of a set of nodes could go, with the fewest NPUs moved.

Tenants elsewhere may have to make room in turn (a chain). The search branches over the target of each tenant and stops
at the cost of the best solution so far. On machines of more than `WIDE` nodes only the domains with the most free nodes
are considered, and tenants move only to nodes in use, or to whole ones in the fullest cabinets.
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
from matrixresource.scheduler.model.placement_arithmetic import enough
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState

CHAIN = 3  # the most tenants that may make room for one another
DIRECT = 100  # in the first steps nobody makes room for anybody
CHEAPEST = 14  # the number of nodes in use considered for a gang that may be anywhere
SETS = 4000  # sets of nodes considered in one domain
WIDE = 2048
DOMAINS_SEEN = 32  # domains considered on a wide machine
ROOMS_SEEN = 256


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
    pieces: dict[int, list[Fragment]]
    rooms: list[int]  # nodes that fragments may move to
    one_by_one: bool = False
    chain: int = CHAIN
    of: dict[str, list[Fragment]] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    reserved: frozenset[int] = frozenset()
    steps: int = 0
    best: float = float("inf")
    won: tuple[frozenset[int], dict[Fragment, int]] | None = None


def pieces_of(ledger: LedgerState) -> dict[int, list[Fragment]]:
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


def candidates(
    ledger: LedgerState, request: PlacementRequest, pieces: dict[int, list[Fragment]], bound: set[str], steps: int
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(NPUs that must leave, nodes) for each set the gang could have, the cheapest first; without nodes that hold
    spares or allocations in `bound`, which must stay."""
    shape, index = ledger.shape, ledger.index
    size = shape.size_of(request.required_domain)
    if request.cabinet_block > 1 and request.nodes <= shape.nodes:
        size = shape.nodes  # elsewhere a set of cells is rarely among the cheapest sets of nodes
    stuck = set(index.faulty_dies)
    for allocation in ledger.allocations.values():
        stuck.update(c * shape.nodes + o for c, mask in allocation.place.spares for o in index.offsets(mask))
    loads = [0.0] * shape.all_nodes
    for node, there in pieces.items():
        for piece in there:
            loads[node] += piece.npus
            if piece.name in bound:
                stuck.add(node)
    found: list[tuple[float, tuple[int, ...]]] = []
    most = min(SETS, 8 * steps)
    for first in _starts(ledger, size):
        here = [node for node in range(first, first + size) if index.up[node] and node not in stuck]
        if len(here) < request.nodes:
            continue
        here.sort(key=loads.__getitem__)
        if size == shape.nodes:
            found += [(sum([loads[n] for n in nodes]), nodes) for nodes in combinations(here, request.nodes)]
            continue
        free = [node for node in here if not loads[node]][: request.nodes]
        short = request.nodes - len(free)
        used = [node for node in here if loads[node]]
        within = next((n for n in range(CHEAPEST, short, -1) if comb(n, short) <= most), short)
        found += [(sum([loads[n] for n in nodes]), (*free, *nodes)) for nodes in combinations(used[:within], short)]
    cut = [
        (size, each)
        for size, each in ((shape.nodes, request.cabinet_block), (shape.of_supernode, request.supernode_block))
        if each > 1
    ]
    yield from (entry for entry in sorted(found) if all(whole(entry[1], size, each) for size, each in cut))


def whole(nodes: tuple[int, ...], size: int, each: int) -> bool:
    """Whether the nodes in each domain of `size` are a multiple of `each`."""
    counts = Counter(node // size for node in nodes)
    return not any(count % each for count in counts.values())


def _starts(ledger: LedgerState, size: int) -> list[int]:
    """The first nodes of the domains to consider; on wide machines those with the most free nodes."""
    shape, index = ledger.shape, ledger.index
    starts = list(range(0, shape.all_nodes, size))
    if shape.all_nodes <= WIDE or len(starts) <= DOMAINS_SEEN:
        return starts
    if size == shape.nodes:
        return nlargest(DOMAINS_SEEN, starts, key=lambda first: index.whole[first // size].bit_count())
    return nlargest(DOMAINS_SEEN, starts, key=lambda first: index.left[first // size])


def rooms_of(ledger: LedgerState) -> list[int]:
    """Nodes that tenants may move to: all, or on a wide machine those in use with the least room."""
    shape, index = ledger.shape, ledger.index
    if shape.all_nodes <= WIDE:
        return list(range(shape.all_nodes))
    found: list[int] = []
    for nodes in (*index.halves[:1], *index.parts[1:]):
        found += low_bits(nodes, ROOMS_SEEN // shape.npus)
    for count in range(1, shape.nodes + 1):
        for supernode in low_bits(index.having[count], 4):
            cabinet = supernode * shape.cabinets + low_bits(index.rows[supernode][count], 1)[0]
            found += [cabinet * shape.nodes + offset for offset in index.offsets(index.whole[cabinet])]
    return sorted(set(found))


def settle(
    search: EvacuationSearch, waiting: list[Fragment], cost: float, moved: dict[Fragment, int], steps: int, depth: int
) -> None:
    """Find a node for each waiting fragment; every complete solution cheaper than the best replaces it."""
    search.steps += 1
    if search.steps > steps or cost + sum(piece.npus for piece in waiting) >= search.best:
        return
    if not waiting:
        if not search.one_by_one or len(executable_order(search.ledger, moved)) == len(moved):
            search.best, search.won = cost, (search.reserved, dict(moved))
        return
    piece, *rest = waiting
    for node in _rooms(search, piece, moved):
        bits = part_dies(search.dies[node], piece.npus)
        search.dies[node] &= ~bits
        moved[piece] = node
        settle(search, rest, cost + piece.npus, moved, steps, depth)
        del moved[piece]
        search.dies[node] |= bits
    if depth >= search.chain:
        return
    for node, leaving in _makes_room(search, piece, moved, rest):
        extra = sum(other.npus for other in leaving)
        if cost + piece.npus + extra + sum(other.npus for other in rest) >= search.best:
            continue
        before = search.dies[node]
        for other in leaving:
            search.dies[node] |= other.dies
        bits = part_dies(search.dies[node], piece.npus)
        search.dies[node] &= ~bits
        moved[piece] = node
        settle(search, sorted([*rest, *leaving], key=lambda p: -p.npus), cost + piece.npus, moved, steps, depth + 1)
        del moved[piece]
        search.dies[node] = before


def _rooms(search: EvacuationSearch, piece: Fragment, moved: dict[Fragment, int]) -> list[int]:
    """Nodes where a fragment fits now, the tightest first; of indistinguishable ones only one."""
    seen: set[tuple[int, int, bool]] = set()
    found: list[tuple[int, int]] = []
    shape, index = search.ledger.shape, search.ledger.index
    for node in search.rooms:
        dies = search.dies[node]
        if not dies or node in search.reserved or not index.up[node] or not enough(dies, piece.npus):
            continue
        alike = (
            dies.bit_count(),
            (dies & dies >> 1 & EVEN).bit_count(),
            node // shape.nodes == piece.node // shape.nodes,
        )
        if alike not in seen and _may_go(search, piece, node, moved):
            seen.add(alike)
            found.append((dies.bit_count(), node))
    return [node for _, node in sorted(found)]


def _makes_room(
    search: EvacuationSearch, piece: Fragment, moved: dict[Fragment, int], waiting: list[Fragment]
) -> list[tuple[int, list[Fragment]]]:
    """(node, fragments that leave it) where a few small ones make room for a larger one, the cheapest first."""
    found: list[tuple[float, int, list[Fragment]]] = []
    index = search.ledger.index
    for node in search.rooms:
        there = search.pieces.get(node, ())
        if not there or node in search.reserved or not index.up[node] or not _may_go(search, piece, node, moved):
            continue
        staying = [p for p in there if p not in moved and p not in waiting and p.npus < piece.npus]
        for count in (1, 2, 3):
            for leaving in combinations(staying, count):
                dies = search.dies[node]
                for other in leaving:
                    dies |= other.dies
                if enough(dies, piece.npus):
                    found.append((sum(other.npus for other in leaving), node, list(leaving)))
    found.sort(key=lambda entry: (entry[0], entry[1]))
    seen: set[tuple[float, tuple[float, ...], int]] = set()
    different = []
    for cost, node, group in found:
        alike = (cost, tuple(sorted(other.npus for other in group)), search.dies[node].bit_count())
        if alike not in seen:
            seen.add(alike)
            different.append((node, group))
    return different[:12]


def _may_go(search: EvacuationSearch, piece: Fragment, node: int, moved: dict[Fragment, int]) -> bool:
    """A gang's fragments stay on different nodes, and inside the domain that its others are in."""
    request, shape = search.ledger.allocations[piece.name].request, search.ledger.shape
    if node in request.excluded_nodes or piece.name in search.bound:
        return False
    if request.nodes == 1:
        return True
    own = search.of[piece.name]
    others = [moved.get(other, other.node) for other in own if other != piece]
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
    dies = {node: ledger.index.dies[node] for piece, target in moved.items() for node in (piece.node, target)}
    waiting, order = list(moved), list[Fragment]()
    while waiting:
        at_home = {(piece.name, piece.node) for piece in waiting}
        ready = (p for p in waiting if enough(dies[moved[p]], p.npus) and (p.name, moved[p]) not in at_home)
        piece = next(ready, None)
        if piece is None:
            break
        target = moved[piece]
        dies[target] &= ~part_dies(dies[target], piece.npus)
        dies[piece.node] |= piece.dies
        waiting.remove(piece)
        order.append(piece)
    return order
