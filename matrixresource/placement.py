"""place(snapshot, wish): which nodes to take, or why none fit. A pure decision on one moment.

Packing takes the fewest cabinets and leaves large free blocks whole: the smallest cabinet that holds all of it, else
the fullest cabinets first and the best fit for what remains. Spreading deals nodes out evenly. Members stay inside one
supernode, since UB ends there. Spares come last, from cabinets already touched, so that they cost no further domain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.vocabulary.errors import InsufficientCapacity
from matrixresource.vocabulary.names import CabinetName, NodeName, SupernodeName


@dataclass(frozen=True)
class Wish:
    """How many members and spares, and how they may lie. `near` are nodes already held by the same owner, `keep` those
    that are taken before others of their cabinet."""

    nodes: int
    spares: int = 0
    policy: str = "pack"
    level: str = "cabinet"
    required: bool = False
    near: tuple[NodeName, ...] = ()
    keep: frozenset[NodeName] = frozenset()


@dataclass(frozen=True)
class Placed:
    """The nodes chosen: members in rank order, then spares."""

    members: tuple[NodeName, ...]
    spares: tuple[NodeName, ...]


def place(snapshot: Snapshot, wish: Wish) -> Placed:
    """The placement. Raises InsufficientCapacity whose `blocking` says, per cabinet, what stands in the way."""
    supernodes = defaultdict(list)
    for node in snapshot.free():
        supernodes[node.name.supernode].append(node)
    home = {name.supernode for name in wish.near}
    candidates = [
        (name, nodes)
        for name, nodes in sorted(supernodes.items())
        if len(nodes) >= wish.nodes + wish.spares and (not home or name in home)
    ]
    # The supernode with the fewest free nodes that still fits keeps the others whole.
    for name, nodes in sorted(candidates, key=lambda each: (len(each[1]), each[0])):
        members = _members(_by_cabinet(nodes, wish.keep), wish, _cabinets_of(snapshot, name))
        if members is not None:
            taken = set(members)
            rest = _by_cabinet(node for node in nodes if node.name not in taken)
            return Placed(tuple(members), tuple(_spares(rest, wish.spares, [*members, *wish.near])))
    raise _refusal(snapshot, wish)


def _by_cabinet(
    nodes: Iterable[NodeOffer], keep: frozenset[NodeName] = frozenset()
) -> dict[CabinetName, list[NodeName]]:
    cabinets: dict[CabinetName, list[NodeName]] = defaultdict(list)
    for node in nodes:
        cabinets[node.cabinet].append(node.name)
    return {name: sorted(held, key=lambda node: (node not in keep, node)) for name, held in sorted(cabinets.items())}


def _cabinets_of(snapshot: Snapshot, supernode: SupernodeName) -> int:
    return len({node.cabinet for node in snapshot.nodes if node.name.supernode == supernode})


def _members(free: dict[CabinetName, list[NodeName]], wish: Wish, cabinets: int) -> list[NodeName] | None:
    if wish.level == "supernode" or not wish.nodes:
        return _packed(free, wish)  # one supernode is already given; inside it, packing is the better neighbour
    if wish.policy == "spread":
        return _spread(free, wish, -(-wish.nodes // cabinets) if wish.required else None)
    if wish.required and not any(len(nodes) >= wish.nodes for nodes in free.values()):
        return None
    return _packed(free, wish)


def _packed(free: dict[CabinetName, list[NodeName]], wish: Wish) -> list[NodeName]:
    touched = {name.cabinet for name in wish.near}
    left = {name: list(nodes) for name, nodes in free.items()}
    chosen: list[NodeName] = []
    while len(chosen) < wish.nodes:
        wanted = wish.nodes - len(chosen)
        holds_all = [name for name in left if len(left[name]) >= wanted]
        if holds_all:
            cabinet = min(holds_all, key=lambda name: (name not in touched, len(left[name]), name))
        else:
            cabinet = min(left, key=lambda name: (-len(left[name]), name not in touched, name))
        chosen += left.pop(cabinet)[:wanted]
    return chosen


def _spread(free: dict[CabinetName, list[NodeName]], wish: Wish, most: int | None) -> list[NodeName] | None:
    left = {name: list(nodes) for name, nodes in free.items()}
    chosen: list[NodeName] = []
    dealt = 0
    while len(chosen) < wish.nodes:
        if most is not None and dealt >= most:
            return None
        for name in sorted(left, key=lambda each: (-len(left[each]), not wish.keep & set(left[each]), each)):
            if left[name] and len(chosen) < wish.nodes:
                chosen.append(left[name].pop(0))
        dealt += 1
    return chosen


def _spares(free: dict[CabinetName, list[NodeName]], wanted: int, members: list[NodeName]) -> list[NodeName]:
    touched = {name.cabinet for name in members}
    order = sorted(free, key=lambda name: (name not in touched, len(free[name]), name))
    return [node for cabinet in order for node in free[cabinet]][:wanted]


def _refusal(snapshot: Snapshot, wish: Wish) -> InsufficientCapacity:
    blocking: list[dict[str, Any]] = []
    cabinets: dict[CabinetName, list[NodeOffer]] = defaultdict(list)
    for node in snapshot.nodes:
        cabinets[node.cabinet].append(node)
    for cabinet, nodes in sorted(cabinets.items()):
        obstacles: dict[str, int] = defaultdict(int)
        for node in nodes:
            if node.obstacle:
                obstacles[node.obstacle] += 1
        blocking.append(
            {
                "domain": cabinet,
                "nodes": len(nodes),
                "free": sum(node.free for node in nodes),
                "obstacles": dict(sorted(obstacles.items())),
            }
        )
    free: dict[SupernodeName, int] = defaultdict(int)
    for node in snapshot.free():
        free[node.name.supernode] += 1
    most = max(free.values(), default=0)
    asked = f"{wish.nodes} nodes" + (f" and {wish.spares} spares" if wish.spares else "")
    if most >= wish.nodes + wish.spares:
        largest = max((entry["free"] for entry in blocking), default=0)
        why = (
            f"no single cabinet has {wish.nodes} free nodes (the largest has {largest})"
            if wish.policy == "pack"
            else f"they cannot be spread evenly over all cabinets ({most} nodes are free)"
        )
        return InsufficientCapacity(f"{asked} do not fit: {why}; make the placement preferred", blocking=blocking)
    return InsufficientCapacity(
        f"{asked} do not fit: the most one supernode has free is {most} nodes", blocking=blocking
    )
