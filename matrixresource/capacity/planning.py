"""Would it fit, why not, what would help, and when: answers about a request, from which nothing is created.

- `why`: for each domain the request could lie in, how many nodes it has for it and what stands in the way there.
- `changes`: the largest number of nodes that would fit; each rule that stands alone in the way; the allocations whose
  end would make room, so that no smaller part of them would do.
- `earliest`: when it fits if everybody leaves when they said.
- `radius`: what the loss of one node, cabinet or supernode would take of the placement.

Trials change the ledger and take every change back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from matrixresource.capacity import constrained, reserving
from matrixresource.capacity.wishes import Place, Wish

if TYPE_CHECKING:
    from matrixresource.capacity.ledger import Ledger

RULES = ("within", "spread", "apart", "near", "spares", "block")
DOMAINS_TOLD = 16
DOMAINS_TRIED = 4


@dataclass(frozen=True)
class Domain:
    """A cabinet or supernode by number: nodes with room for a member, nodes short, and obstacles with their counts."""

    over: str
    number: int
    room: int
    short: int
    obstacles: dict[str, int]


@dataclass(frozen=True)
class Change:
    """One way to make it fit: `fewer` nodes, `relax` a rule, or `release` allocations with so many NPUs."""

    kind: str
    nodes: int = 0
    rule: str = ""
    names: tuple[str, ...] = ()
    npus: float = 0.0


@dataclass(frozen=True)
class Answer:
    """`place` when it fits now; otherwise why not and what would help."""

    place: Place | None
    why: tuple[Domain, ...] = ()
    changes: tuple[Change, ...] = ()
    earliest: float | None = None
    radius: tuple[tuple[str, int], ...] = ()


def answer(ledger: Ledger, wish: Wish, now: float) -> Answer:
    """Everything there is to say about a request."""
    place = ledger.choose(wish)
    if place is not None:
        return Answer(place, earliest=now, radius=radius(ledger, place))
    found = [*fewer(ledger, wish), *relaxed(ledger, wish)]
    if (release := room_makers(ledger, wish)) is not None:
        found.append(release)
    return Answer(None, why(ledger, wish), tuple(found), earliest(ledger, wish, now))


# ---- why not


def why(ledger: Ledger, wish: Wish) -> tuple[Domain, ...]:
    """The domains nearest to serving it, the best first."""
    shape = ledger.shape
    over = wish.within or "supernode"
    size = shape.nodes if over == "cabinet" else shape.of_supernode
    allowed = constrained.Allowed(ledger, wish)
    numbers: list[int] = list(range(shape.all_nodes // size))
    if wish.per == shape.npus and not allowed and wish.spread is None:  # the index knows which come nearest
        free = [mask.bit_count() for mask in ledger.index.whole] if over == "cabinet" else ledger.index.left
        numbers = sorted(numbers, key=lambda number: (-free[number], number))[:DOMAINS_TOLD]
    found = [_domain(ledger, wish, over, number, size, allowed) for number in numbers]
    found.sort(key=lambda domain: (domain.short, domain.number))
    return tuple(found[:DOMAINS_TOLD])


def _domain(ledger: Ledger, wish: Wish, over: str, number: int, size: int, allowed: constrained.Allowed) -> Domain:
    index = ledger.index
    obstacles: Counter[str] = Counter()
    room = 0
    for node in range(number * size, (number + 1) * size):
        if index.free[node] < 0:
            obstacles["down"] += 1
        elif not (index.free[node] >= wish.per if wish.per >= 1 else index.dies[node]):
            obstacles["held"] += 1
        elif allowed and not allowed(node):
            obstacles["apart" if wish.apart else "near"] += 1
        else:
            room += 1
    if wish.spread is not None and wish.spread.required:
        each = ledger.shape.nodes if wish.spread.over == "cabinet" else size
        domains = max(1, size // each)
        obstacles["spread"] = max(0, room - domains * wish.spread.most)
        room = min(room, domains * wish.spread.most)
    return Domain(
        over, number, room, max(0, wish.nodes + wish.spares - room), {k: n for k, n in obstacles.items() if n}
    )


# ---- what would help


def fewer(ledger: Ledger, wish: Wish) -> list[Change]:
    """The largest gang with the same rules that fits."""
    low, high = 0, wish.nodes // wish.block
    while low < high - 1:
        middle = (low + high) // 2
        if ledger.choose(replace(wish, nodes=middle * wish.block)) is not None:
            low = middle
        else:
            high = middle
    return [Change("fewer", nodes=low * wish.block)] if low else []


def relaxed(ledger: Ledger, wish: Wish) -> list[Change]:
    """Each single rule without which it fits."""
    blank = Wish(1)
    found = []
    for rule in RULES:
        if getattr(wish, rule) != getattr(blank, rule):
            without = replace(wish, **{rule: getattr(blank, rule)})
            if ledger.choose(without) is not None:
                found.append(Change("relax", rule=rule))
    return found


def room_makers(ledger: Ledger, wish: Wish) -> Change | None:
    """Allocations whose end makes room: few NPUs, and none of them could stay."""
    shape = ledger.shape
    if wish.nodes > shape.all_nodes:
        return None
    best: list[str] | None = None
    with trial(ledger) as released:
        for names in _by_domain(ledger, wish):
            for name in names:
                released(name)
                if ledger.choose(wish) is not None:
                    break
            else:
                released.restore()
                continue
            chosen = released.pruned(wish)
            released.restore()
            if best is None or npus_of(ledger, chosen) < npus_of(ledger, best):
                best = chosen
    return None if best is None else Change("release", names=tuple(sorted(best)), npus=npus_of(ledger, best))


def npus_of(ledger: Ledger, names: list[str]) -> float:
    return sum(ledger.held[name].wish.npus for name in names)


def _by_domain(ledger: Ledger, wish: Wish) -> Iterator[list[str]]:
    """For the domains nearest to serving it: their tenants, those first that free a node for the fewest NPUs."""
    shape = ledger.shape
    for domain in why(ledger, wish)[:DOMAINS_TRIED]:
        size = shape.nodes if domain.over == "cabinet" else shape.of_supernode
        cabinets = range(domain.number * size // shape.nodes, (domain.number + 1) * size // shape.nodes)
        names = {name for cabinet in cabinets for name in ledger.tenants[cabinet]}
        yield sorted(names, key=lambda name: (ledger.held[name].wish.npus, name))
    if not wish.within:
        yield sorted(ledger.held, key=lambda name: (ledger.held[name].wish.npus, name))


class Released:
    """Allocations given back on trial, in order."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.names = ledger, dict[str, None]()

    def __call__(self, name: str) -> None:
        self.ledger.give(name, self.ledger.held[name].place)
        self.names[name] = None

    def take_back(self, name: str) -> None:
        held = self.ledger.held[name]
        self.ledger.take(name, held.place, held.wish.end)
        del self.names[name]

    def restore(self) -> None:
        for name in list(self.names):
            self.take_back(name)

    def pruned(self, wish: Wish) -> list[str]:
        """Those that have to be gone: each of the others stays, the largest first."""
        for name in sorted(self.names, key=lambda each: -self.ledger.held[each].wish.npus):
            self.take_back(name)
            if self.ledger.choose(wish) is None:
                self(name)
        return list(self.names)


@contextmanager
def trial(ledger: Ledger) -> Iterator[Released]:
    """Give allocations back for a while; at the end everything is as it was, hints about leaving times included."""
    ends = list(ledger.chooser.node_ends), list(ledger.chooser.cabinet_ends)
    released = Released(ledger)
    try:
        yield released
    finally:
        released.restore()
        ledger.chooser.node_ends, ledger.chooser.cabinet_ends = ends


# ---- when


def earliest(ledger: Ledger, wish: Wish, now: float) -> float | None:
    """The first moment at which it fits if everybody leaves as said; None when that never happens.

    Beside reservations it must fit for as long as it means to stay.
    """
    if ledger.promises:
        with reserving.without_promises(ledger):
            least = now if ledger.choose(wish) is not None else earliest(ledger, wish, now)
        return None if least is None else reserving.first_start(ledger, wish, now, least)
    leaving = sorted((held.wish.end, name) for name, held in ledger.held.items() if held.wish.end != inf)
    low, high = 0, len(leaving)  # it does not fit when the first `low` have left; it does, if at all, with `high`
    with trial(ledger) as released:
        step = 1
        while low < high:
            reach = min(low + step, high)
            for _, name in leaving[low:reach]:
                released(name)
            if ledger.choose(wish) is None:
                low, step = reach, step * 2
                continue
            if reach == low + 1:
                return max(leaving[low][0], now)
            for _, name in reversed(leaving[low:reach]):
                released.take_back(name)
            high, step = reach, max(1, (reach - low) // 2)
    return None


# ---- what a loss would take


def radius(ledger: Ledger, place: Place) -> tuple[tuple[str, int], ...]:
    """(what is lost, most members it takes) for a node, a cabinet and a supernode."""
    shape = ledger.shape
    members = [c * shape.nodes + o for c, mask in place.whole for o in ledger.index.offsets(mask)]
    members += [node for node, _ in place.parts]
    found = []
    for over, size in (("node", 1), ("cabinet", shape.nodes), ("supernode", shape.of_supernode)):
        counts = Counter(node // size for node in members)
        found.append((over, max(counts.values(), default=0)))
    return tuple(found)
