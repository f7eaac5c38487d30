"""plan_move(snapshot, held, wish): from where an allocation lies to where it should lie. A pure decision on one moment.

Members that may stay, stay, and keep their rank. For each other rank a successor is taken from the free nodes and
deployed beside the member it will follow, so that what was there serves until all of it can change over at once: a move
needs as many free nodes as it moves members, and none where the present layout is as good as any other to be had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.placement import Wish, place
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.names import NodeName


@dataclass(frozen=True)
class Held:
    """What the allocation has: ranks of its members, and of the successors a move under way has taken already.

    `fit` are those of them that could be taken today, were they free.
    """

    members: Mapping[NodeName, int]
    successors: Mapping[NodeName, int] = field(default_factory=dict)
    fit: frozenset[NodeName] = frozenset()


@dataclass(frozen=True)
class Move:
    """The layout after the move: who holds which rank, and which of them still have to come."""

    ranks: Mapping[NodeName, int]
    coming: Mapping[NodeName, int]


def plan_move(snapshot: Snapshot, held: Held, wish: Wish) -> Move:
    """The move to the layout `wish` asks for. Raises InsufficientCapacity when no such layout is to be had."""
    ours = [*held.members, *held.successors]
    best = place(
        _with(snapshot, [name for name in ours if name in held.fit]),
        Wish(wish.nodes, 0, wish.policy, wish.level, wish.required, near=tuple(ours), keep=frozenset(ours)),
    ).members
    ranks = begun(held)
    whole = len(ranks) == wish.nodes and set(ranks) <= held.fit
    if not (whole and _cost(ranks, wish) <= _cost(best, wish) and _allowed(snapshot, ranks, wish)):
        ranks = _ranked(best, held, wish.nodes)
    return Move(ranks, {name: rank for name, rank in ranks.items() if name not in held.members})


def _with(snapshot: Snapshot, names: Iterable[NodeName]) -> Snapshot:
    """The same moment with some held nodes to be had."""
    ours = set(names)
    return Snapshot(
        tuple(NodeOffer(n.name, None, n.holder) if n.name in ours else n for n in snapshot.nodes),
        snapshot.topology_version,
    )


def begun(held: Held) -> dict[NodeName, int]:
    """Where a move under way leads; where nothing moves, what is there."""
    followed = set(held.successors.values())
    staying = {name: rank for name, rank in held.members.items() if rank not in followed}
    return staying | dict(held.successors)


def _cost(nodes: Iterable[NodeName], wish: Wish) -> int:
    """How far a layout is from what the policy likes: how many domains it touches, or how full the fullest is."""
    if wish.level == "supernode":
        return len({name.supernode for name in nodes})
    cabinets = Counter(name.cabinet for name in nodes)
    return len(cabinets) if wish.policy == "pack" else max(cabinets.values(), default=0)


def _allowed(snapshot: Snapshot, nodes: Iterable[NodeName], wish: Wish) -> bool:
    """Whether a layout keeps a required placement: it does when it is the answer to being offered these nodes alone."""
    if not wish.required:
        return True
    chosen = set(nodes)
    offers = tuple(NodeOffer(n.name, None if n.name in chosen else "Held", n.holder) for n in snapshot.nodes)
    try:
        place(Snapshot(offers, snapshot.topology_version), wish)
    except InsufficientCapacity:
        return False
    return True


def _ranked(chosen: Iterable[NodeName], held: Held, nodes: int) -> dict[NodeName, int]:
    """Who is there keeps its rank where that rank is still there; the others take what is left, in their order."""
    ranks: dict[NodeName, int] = {}
    for name in chosen:
        rank = held.members.get(name, held.successors.get(name))
        if rank is not None and rank < nodes and rank not in ranks.values():
            ranks[name] = rank
    left = iter(sorted(set(range(nodes)) - set(ranks.values())))
    return ranks | {name: next(left) for name in chosen if name not in ranks}
