"""Room for one more gang by moving others: the plan that moves the fewest NPUs.

For each set of nodes the gang could have, the tenants there must go elsewhere, and whoever makes room for them may
have to go too (a chain). Sets are tried by what lies on them, which no plan can undercut; inside a set the search
branches over where each tenant goes and stops at what the best plan so far costs. `STEPS` bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

from matrixresource.capacity.constrained import part_dies
from matrixresource.capacity.index import EVEN
from matrixresource.capacity.wishes import Place, Wish
from matrixresource.capacity.withholding import closed

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Ledger

STEPS = 120_000
CHAIN = 3
CHEAPEST = 14  # how many nodes in use are considered for a gang that may lie anywhere


@dataclass(frozen=True)
class Piece:
    """What an allocation has on one node."""

    name: str
    node: int
    dies: int
    npus: float


@dataclass
class Plan:
    """The gang's place and the new places of whom it moves; `moved` counts NPUs."""

    place: Place
    moves: dict[str, Place]
    moved: float


@dataclass
class Search:
    """The state of one search: dies free by node, pieces by node, what has moved where."""

    ledger: Ledger
    dies: list[int]
    pieces: dict[int, list[Piece]]
    reserved: frozenset[int] = frozenset()
    steps: int = 0
    best: float = float("inf")
    found: dict[Piece, int] = field(default_factory=dict)
    where: dict[Piece, int] = field(default_factory=dict)  # pieces away from home: the node they are on now
    won: tuple[frozenset[int], dict[Piece, int]] | None = None


def plan(ledger: Ledger, wish: Wish, steps: int = STEPS) -> Plan | None:
    """How to make room, or None when no plan was found. Gangs of whole nodes only; nothing is changed."""
    if wish.per != ledger.shape.npus or not wish.nodes:
        return None
    promised = ledger.promises.between(-inf, inf).nodes(ledger.index)
    with closed(ledger.index, wish.avoid | promised):
        return _plan_on_open_nodes(ledger, wish, steps)


def _plan_on_open_nodes(ledger: Ledger, wish: Wish, steps: int) -> Plan | None:
    search = Search(ledger, list(ledger.index.dies), pieces_of(ledger))
    for lower, nodes in candidates(ledger, wish, search.pieces):
        if lower >= search.best or search.steps > steps:
            break
        search.reserved = frozenset(nodes)
        waiting = sorted((p for node in nodes for p in search.pieces.get(node, ())), key=lambda p: (-p.npus, p.name))
        for piece in waiting:
            search.dies[piece.node] |= piece.dies
        _settle(search, waiting, 0.0, {}, steps, 0)
        for piece in waiting:
            search.dies[piece.node] &= ~piece.dies
    if search.won is None:
        return None
    return _plan(ledger, *search.won)


def pieces_of(ledger: Ledger) -> dict[int, list[Piece]]:
    """Every piece by node; spares, sockets and memory stay where they are."""
    found: dict[int, list[Piece]] = {}
    shape, index = ledger.shape, ledger.index
    for name, held in ledger.held.items():
        for cabinet, mask in held.place.whole:
            for offset in index.offsets(mask):
                node = cabinet * shape.nodes + offset
                found.setdefault(node, []).append(Piece(name, node, shape.dies, shape.npus))
        for node, dies in held.place.parts:
            found.setdefault(node, []).append(Piece(name, node, dies, held.wish.per))
    return found


def candidates(ledger: Ledger, wish: Wish, pieces: dict[int, list[Piece]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(NPUs that must leave, nodes) for each set the gang could have, the cheapest first."""
    shape, index = ledger.shape, ledger.index
    size = {"cabinet": shape.nodes, "supernode": shape.of_supernode, "": shape.all_nodes}[wish.within]
    stuck = {
        c * shape.nodes + o for held in ledger.held.values() for c, m in held.place.spares for o in index.offsets(m)
    }

    def load(node: int) -> float:
        return sum(piece.npus for piece in pieces.get(node, ()))

    found: list[tuple[float, tuple[int, ...]]] = []
    for first in range(0, shape.all_nodes, size):
        here = sorted(
            (n for n in range(first, first + size) if index.up[n] and n not in stuck), key=lambda n: (load(n), n)
        )
        free = [node for node in here if not load(node)][: wish.nodes]
        if len(here) < wish.nodes:
            continue
        if size == shape.nodes:
            found += [(sum(map(load, nodes)), nodes) for nodes in combinations(here, wish.nodes)]
            continue
        used = [node for node in here if load(node)][:CHEAPEST]
        for short in {wish.nodes - len(free)} if len(used) >= wish.nodes - len(free) else set[int]():
            found += [(sum(map(load, nodes)), (*free, *nodes)) for nodes in combinations(used, short)]
    yield from sorted(found)


def _settle(search: Search, waiting: list[Piece], cost: float, moved: dict[Piece, int], steps: int, depth: int) -> None:
    """Find a node for each waiting piece; every whole solution cheaper than the best replaces it."""
    search.steps += 1
    if search.steps > steps or cost + sum(piece.npus for piece in waiting) >= search.best:
        return
    if not waiting:
        search.best, search.won = cost, (search.reserved, dict(moved))
        return
    piece, *rest = waiting
    for node in _rooms(search, piece, moved):
        bits = part_dies(search.dies[node], piece.npus)
        search.dies[node] &= ~bits
        moved[piece] = node
        _settle(search, rest, cost + piece.npus, moved, steps, depth)
        del moved[piece]
        search.dies[node] |= bits
    if depth >= CHAIN:
        return
    for node, leaving in _makes_room(search, piece, moved):
        extra = sum(other.npus for other in leaving)
        if cost + piece.npus + extra + sum(other.npus for other in rest) >= search.best:
            continue
        before = search.dies[node]
        for other in leaving:
            search.dies[node] |= other.dies
        bits = part_dies(search.dies[node], piece.npus)
        search.dies[node] &= ~bits
        moved[piece] = node
        _settle(search, sorted([*rest, *leaving], key=lambda p: -p.npus), cost + piece.npus, moved, steps, depth + 1)
        del moved[piece]
        search.dies[node] = before


def _room(dies: int, npus: float) -> bool:
    pairs = dies & dies >> 1 & EVEN
    return bool(dies) if npus < 1 else pairs.bit_count() >= npus


def _rooms(search: Search, piece: Piece, moved: dict[Piece, int]) -> list[int]:
    """Nodes where a piece fits as they are, the tightest first; of those that look alike only one."""
    seen: set[tuple[int, int, bool]] = set()
    found: list[tuple[int, int]] = []
    shape, index = search.ledger.shape, search.ledger.index
    for node, dies in enumerate(search.dies):
        if not dies or node in search.reserved or not index.up[node] or not _room(dies, piece.npus):
            continue
        if not _may_go(search, piece, node, moved):
            continue
        alike = (
            dies.bit_count(),
            (dies & dies >> 1 & EVEN).bit_count(),
            node // shape.nodes == piece.node // shape.nodes,
        )
        if alike not in seen:
            seen.add(alike)
            found.append((dies.bit_count(), node))
    return [node for _, node in sorted(found)]


def _makes_room(search: Search, piece: Piece, moved: dict[Piece, int]) -> list[tuple[int, list[Piece]]]:
    """(node, pieces that leave it) where few small ones make room for a larger one, the cheapest first."""
    found: list[tuple[float, int, list[Piece]]] = []
    index = search.ledger.index
    for node, there in search.pieces.items():
        if node in search.reserved or not index.up[node] or not _may_go(search, piece, node, moved):
            continue
        staying = [other for other in there if other not in moved and other.npus < piece.npus]
        for count in (1, 2, 3):
            for leaving in combinations(staying, count):
                dies = search.dies[node]
                for other in leaving:
                    dies |= other.dies
                if _room(dies, piece.npus):
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


def _may_go(search: Search, piece: Piece, node: int, moved: dict[Piece, int]) -> bool:
    """A gang's pieces stay on different nodes, and inside the domain the others of it are in."""
    held = search.ledger.held[piece.name]
    wish, shape = held.wish, search.ledger.shape
    if node in wish.avoid:
        return False
    if wish.nodes == 1:
        return True
    others = [
        moved.get(other, other.node)
        for there in search.pieces.values()
        for other in there
        if other.name == piece.name and other != piece
    ]
    if node in others:
        return False
    if not wish.within:
        return not (wish.spread or wish.apart or wish.near or wish.block > 1)
    size = shape.nodes if wish.within == "cabinet" else shape.of_supernode
    settled = [moved.get(o) for there in search.pieces.values() for o in there if o.name == piece.name and o in moved]
    staying = [other for other in others if other not in search.reserved]
    return all(other is not None and other // size == node // size for other in settled) and (
        wish.within != "cabinet" or all(other // size == node // size for other in staying if other is not None)
    )


def _plan(ledger: Ledger, nodes: frozenset[int], moved: dict[Piece, int]) -> Plan:
    """The places after everybody has moved at once."""
    shape = ledger.shape
    dies = list(ledger.index.dies)
    for piece in moved:
        dies[piece.node] |= piece.dies
    places: dict[str, Place] = {}
    for piece, node in sorted(moved.items(), key=lambda entry: (-entry[0].npus, entry[0].name, entry[0].node)):
        if piece.name not in places:
            old = ledger.held[piece.name].place
            places[piece.name] = Place(
                list(old.whole), list(old.parts), list(old.spares), list(old.cpus), list(old.mem)
            )
        place = places[piece.name]
        bits = part_dies(dies[node], piece.npus)
        dies[node] &= ~bits
        _shift(place, piece, node, bits, shape.nodes, shape.npus)
    masks: dict[int, int] = {}
    for node in nodes:
        cabinet, offset = divmod(node, shape.nodes)
        masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
    return Plan(Place(whole=sorted(masks.items())), places, sum(piece.npus for piece in moved))


def _shift(place: Place, piece: Piece, node: int, bits: int, nodes: int, npus: int) -> None:
    if piece.npus < npus:
        place.parts = [(n, d) for n, d in place.parts if n != piece.node] + [(node, bits)]
        return
    masks = dict(place.whole)
    cabinet, offset = divmod(piece.node, nodes)
    masks[cabinet] &= ~(1 << offset)
    cabinet, offset = divmod(node, nodes)
    masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
    place.whole = [(c, mask) for c, mask in masks.items() if mask]
