"""plan(snapshot, wish): would it fit, and where; if not, why not and what would help. It creates nothing.

The one who decides is `place`, so a plan says what an allocation would meet. What would help is looked for in three
ways: fewer nodes, the placement as a preference instead of a condition, and allocations to release. Of the last it
names few nodes' worth, and none that could stay.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from matrixresource.inventory import NodeOffer, Snapshot
from matrixresource.placement import Placed, Wish, place
from matrixresource.vocabulary.errors import InsufficientCapacity


@dataclass(frozen=True)
class Obstacles:
    """A cabinet: its nodes, those free, and what stands in the way on the others."""

    cabinet: str
    nodes: int
    free: int
    reasons: dict[str, int]


@dataclass(frozen=True)
class Change:
    """One thing that would make it fit: `Fewer` nodes, the placement `Preferred`, or allocations to `Release`."""

    kind: Literal["Fewer", "Preferred", "Release"]
    nodes: int | None = None
    allocations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """`placed` when it fits; otherwise `refusal`, the cabinets and the changes that would help."""

    placed: Placed | None
    refusal: str = ""
    blocking: tuple[Obstacles, ...] = ()
    changes: tuple[Change, ...] = ()

    def radius(self) -> dict[str, int]:
        """The most members that the loss of one node, cabinet or supernode takes."""
        members = self.placed.members if self.placed else ()
        domains: dict[str, list[str]] = {
            "node": [str(name) for name in members],
            "cabinet": [str(name.cabinet) for name in members],
            "supernode": [str(name.supernode) for name in members],
        }
        return {domain: max(Counter(names).values(), default=0) for domain, names in domains.items()}


def plan(snapshot: Snapshot, wish: Wish) -> Plan:
    """The whole answer."""
    try:
        return Plan(place(snapshot, wish))
    except InsufficientCapacity as refusal:
        changes = [*_fewer(snapshot, wish), *_preferred(snapshot, wish), *_release(snapshot, wish)]
        return Plan(None, str(refusal), _blocking(snapshot), tuple(changes))


def fits(snapshot: Snapshot, wish: Wish) -> bool:
    try:
        place(snapshot, wish)
    except InsufficientCapacity:
        return False
    return True


def largest(snapshot: Snapshot, wish: Wish) -> int:
    """The most nodes that fit with everything else as wished; 0 when not even one does."""
    most = max(Counter(node.name.supernode for node in snapshot.free()).values(), default=0)
    wanted = range(min(most, max(wish.nodes, 1)), 0, -1)
    return next((nodes for nodes in wanted if fits(snapshot, replace(wish, nodes=nodes))), 0)


def _blocking(snapshot: Snapshot) -> tuple[Obstacles, ...]:
    cabinets: dict[str, list[NodeOffer]] = defaultdict(list)
    for node in snapshot.nodes:
        cabinets[node.cabinet].append(node)
    return tuple(
        Obstacles(
            cabinet,
            len(nodes),
            sum(node.free for node in nodes),
            dict(sorted(Counter(node.obstacle for node in nodes if node.obstacle).items())),
        )
        for cabinet, nodes in sorted(cabinets.items())
    )


def _fewer(snapshot: Snapshot, wish: Wish) -> list[Change]:
    found = largest(snapshot, replace(wish, nodes=wish.nodes - 1)) if wish.nodes > 1 else 0
    return [Change("Fewer", nodes=found)] if found else []


def _preferred(snapshot: Snapshot, wish: Wish) -> list[Change]:
    return [Change("Preferred")] if wish.required and fits(snapshot, replace(wish, required=False)) else []


def _release(snapshot: Snapshot, wish: Wish) -> list[Change]:
    """Smallest holders first, until it fits; then each that need not go stays, the largest first."""
    held = Counter(node.holder for node in snapshot.nodes if node.holder)
    order = [name for name, _ in sorted(held.items(), key=lambda entry: (entry[1], entry[0]))]
    best: list[str] | None = None
    cabinets = sorted({node.cabinet for node in snapshot.nodes})
    near = [{n.holder for n in snapshot.nodes if n.cabinet == c and n.holder} for c in cabinets]
    for candidates in [*(near if wish.required else []), set(order)]:
        chosen = _needed(snapshot, wish, [name for name in order if name in candidates])
        if chosen is not None and (best is None or _size(held, chosen) < _size(held, best)):
            best = chosen
    return [Change("Release", nodes=_size(held, best), allocations=tuple(sorted(best)))] if best else []


def _needed(snapshot: Snapshot, wish: Wish, order: list[str]) -> list[str] | None:
    gone: list[str] = []
    for name in order:
        gone.append(name)
        if fits(_without_holders(snapshot, gone), wish):
            break
    else:
        return None
    for name in reversed(list(gone)):
        rest = [other for other in gone if other != name]
        if fits(_without_holders(snapshot, rest), wish):
            gone = rest
    return gone


def _size(held: Counter[str], names: Iterable[str]) -> int:
    return sum(held[name] for name in names)


def _without_holders(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The same moment with what they hold free, except what a fault keeps out."""
    gone = set(names)
    offers = (NodeOffer(n.name, n.fault, None, n.fault) if n.holder in gone else n for n in snapshot.nodes)
    return Snapshot(tuple(offers), snapshot.topology_version)


def free_blocks(snapshot: Snapshot) -> dict[str, int]:
    """Of each size in nodes up to a cabinet, how many cabinets have so many free together; and the largest block."""
    cabinets: Counter[str] = Counter(node.cabinet for node in snapshot.nodes)
    free: Counter[str] = Counter(node.cabinet for node in snapshot.free())
    size = max(cabinets.values(), default=0)
    return {str(nodes): sum(count >= nodes for count in free.values()) for nodes in range(1, size + 1)}


def largest_blocks(snapshot: Snapshot) -> dict[str, int]:
    """The most nodes that one request can have inside one cabinet, and inside one supernode."""
    free = snapshot.free()

    def most(domains: Iterable[str]) -> int:
        return max(Counter(domains).values(), default=0)

    return {"cabinet": most(node.cabinet for node in free), "supernode": most(node.name.supernode for node in free)}


def told(change: Change) -> str:
    """A change in a sentence."""
    if change.kind == "Fewer":
        return f"{change.nodes} nodes would fit"
    if change.kind == "Preferred":
        return "it would fit if the placement were preferred, not required"
    return f"it would fit without {', '.join(change.allocations)}, which hold {change.nodes} nodes"
