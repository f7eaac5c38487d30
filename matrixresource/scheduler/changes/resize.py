"""Changes of an allocation in place: it grows, shrinks, gives a node up, is laid out anew, gets its spares back.

Each answers the whole new place, or None when there is none, and changes nothing; `Ledger` commits. What is required
of the request holds for what stays and what is added together; preferences are kept where they fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as changed
from typing import TYPE_CHECKING

from matrixresource.scheduler.changes import repair
from matrixresource.scheduler.changes.minimal_move_layout import lay_out, obeys
from matrixresource.scheduler.changes.relayout import cut, laid_out, scopes_of
from matrixresource.scheduler.model.free_capacity_index import EVEN, Index
from matrixresource.scheduler.model.placement_arithmetic import (
    add,
    copied,
    enough,
    masks_of,
    members_of,
    nodes_in,
    tidy,
    used_nodes,
)
from matrixresource.scheduler.model.request import Place, Wish
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.preferences import first_that_fits
from matrixresource.scheduler.placement.reserved_capacity import clashes, closed, withheld

if TYPE_CHECKING:
    from matrixresource.scheduler.ledger import Ledger


AMOUNTS = ("nodes", "per", "spares", "cpus", "mem")


def grow(ledger: Ledger, name: str, wish: Wish) -> Place | None:
    """Everything held stays; members, spares, sockets and GiB are added near it. ValueError when the wish is smaller.

    A part of a node grows on its node. Spares lost before are not asked for again here (`refill` does).
    """
    held = ledger.held[name]
    old = held.wish
    if any(getattr(wish, amount) < getattr(old, amount) for amount in AMOUNTS):
        raise ValueError(f"{name}: this is not growing")
    if clashes(ledger, name, held.place, wish.end):
        return None
    spares = len(nodes_in(ledger.index, held.place.spares)) + wish.spares - old.spares
    with withheld(ledger, wish):
        return first_that_fits(ledger.shape, changed(wish, spares=spares), lambda firm: grown(ledger, held.place, firm))


def shrink(ledger: Ledger, name: str, wish: Wish, keep: list[int]) -> Place:
    """Of the members in `keep`, in the order of their ranks, the last go; spares and pools go down to what is asked.

    ValueError when the wish is larger, when `keep` names a node that is no member, or too few, or when what is left
    breaks a rule.
    """
    if any(getattr(wish, amount) > getattr(ledger.held[name].wish, amount) for amount in AMOUNTS):
        raise ValueError(f"{name}: this is not shrinking")
    place = shrunk(ledger, ledger.held[name].place, wish, keep)
    if not obeys(ledger, wish, place, members_of(ledger.index, place)):
        raise ValueError(f"{name}: the members that stay break a rule")
    if clashes(ledger, name, place, wish.end):
        raise ValueError(f"{name}: its nodes are promised before it would leave")
    return place


def resize(ledger: Ledger, name: str, wish: Wish, keep: list[int]) -> Place | None:
    """Where some of it grows and some shrinks: first what goes, then what is added."""
    index, held = ledger.index, ledger.held[name]
    old = held.place
    smaller = changed(wish, nodes=min(wish.nodes, len(members_of(index, old))), per=min(wish.per, held.wish.per))
    with withheld(ledger, wish):
        less = shrunk(ledger, old, smaller, keep)
        if clashes(ledger, name, less, wish.end):
            return None
        return first_that_fits(ledger.shape, wish, lambda firm: grown(ledger, less, firm))


def replace(ledger: Ledger, name: str, node: int, avoid: frozenset[int] = frozenset()) -> Place | None:
    """A member or spare is given up, with what else lies on its node: a held spare steps in, else a free node.

    A spare that is given up is replaced by a free node. Nobody else moves. ValueError when nothing lies there.
    """
    index, held = ledger.index, ledger.held[name]
    wish, old = held.wish, held.place
    if node not in used_nodes(index, old):
        raise ValueError(f"{name}: nothing of it lies on node {node}")
    kept = repair.without(index, old, node)
    count = len(nodes_in(index, old.spares))
    stayed = members_of(index, kept)
    with closed(index, avoid | {node}), withheld(ledger, wish):
        if not used_nodes(index, kept):
            return ledger.choose_shown(wish)
        if node in members_of(index, old):
            for stepped_in in _with_spare(index, kept, wish, node):
                found = grown(ledger, stepped_in, changed(wish, spares=count - 1), stayed)
                if found is not None:
                    return found
        wanted = changed(wish, spares=count)
        return first_that_fits(ledger.shape, wanted, lambda firm: grown(ledger, kept, firm, stayed))


def move(ledger: Ledger, name: str, wish: Wish) -> Place | None:
    """A layout under the new wish that keeps as many of the present nodes as it can."""
    held = ledger.held[name]
    ledger.give(name, held.place)
    try:
        with withheld(ledger, wish):
            return first_that_fits(ledger.shape, wish, lambda firm: laid_out(ledger, held.place, firm))
    finally:
        ledger.take(name, held.place, held.wish.end)


def refill(ledger: Ledger, name: str) -> Place:
    """Missing spares taken, as many as can be had."""
    held = ledger.held[name]
    place = copied(held.place)
    missing = held.wish.spares - len(nodes_in(ledger.index, place.spares))
    if missing > 0:
        with withheld(ledger, held.wish):
            scope = scopes_of(ledger, held.wish, used_nodes(ledger.index, place))[0]
            constrained.spares_beside(ledger.index, changed(held.wish, spares=missing), scope, place)
    return tidy(ledger.index, place)


# ---- more


def grown(ledger: Ledger, place: Place, wish: Wish, stayed: set[int] | None = None) -> Place | None:
    """A place and what it lacks of a request; the index holds the place as taken. `stayed` is as in `obeys`."""
    index = ledger.index
    found = _widened(index, place, wish.per)
    scopes = scopes_of(ledger, wish, used_nodes(index, place))
    if found is None or len(scopes) != 1:
        return None
    missing = max(0, wish.spares - len(nodes_in(index, found.spares)))
    for spares in (0, missing) if missing and wish.cell == 1 else (missing,):  # rarely, members must leave them room
        wider = _with_members(ledger, found, wish, scopes[0], spares)
        if wider is not None and (
            not missing or constrained.spares_beside(index, changed(wish, spares=missing), scopes[0], wider)
        ):
            break
    else:
        return None
    found = wider
    cpus, mem = (wanted - sum(n for _, n in had) for wanted, had in ((wish.cpus, found.cpus), (wish.mem, found.mem)))
    if cpus > 0 or mem > 0:
        more = changed(wish, cpus=max(0, cpus), mem=max(0, mem))
        if not constrained.pools_around(ledger, more, scopes[0], found):
            return None
    tidy(index, found)
    return found if obeys(ledger, wish, found, stayed) else None


def _with_members(ledger: Ledger, place: Place, wish: Wish, scope: range, spares: int) -> Place | None:
    """The place with the members it lacks, which leave whole nodes for so many spares."""
    found, own = copied(place), members_of(ledger.index, place)
    if wish.nodes <= len(own):
        return found
    members = lay_out(ledger, wish, own, scope, stay=True, spares=spares)
    if members is None:
        return None
    add(ledger.index, found, members - own, wish.per)
    return found


def _widened(index: Index, place: Place, per: float) -> Place | None:
    """Each part grown on its node to so many NPUs, its own dies among them; None where a node is full or closed."""
    found = copied(place)
    found.parts = []
    whole: set[int] = set()
    for node, dies in place.parts:
        wider = _wider(index.dies[node], dies, per)
        if wider is None or (wider != dies and not index.up[node]):
            return None
        if wider == index.shape.dies:
            whole.add(node)
        else:
            found.parts.append((node, wider))
    found.whole += masks_of(index, whole).items()
    return found


def _wider(free: int, own: int, per: float) -> int | None:
    if own.bit_count() == int(2 * per):
        return own
    pairs = own & EVEN | own >> 1 & EVEN  # the NPUs it has any die of
    both = (free | own) & (free | own) >> 1 & EVEN
    left = int(per) - pairs.bit_count()
    if pairs & ~both or left < 0:
        return None
    others = both & ~pairs
    for _ in range(left):
        if not others:
            return None
        pairs |= others & -others
        others &= others - 1
    return pairs * 3


# ---- less


def shrunk(ledger: Ledger, place: Place, wish: Wish, keep: list[int]) -> Place:
    index = ledger.index
    members, stay = members_of(index, place), set(keep[: wish.nodes])
    if not set(keep) <= members or len(stay) != wish.nodes:
        raise ValueError(f"{wish.nodes} members are to stay, and {len(stay)} of {len(members)} are named")
    found = Place()
    dies = dict(place.parts) | dict.fromkeys(nodes_in(index, place.whole), index.shape.dies)
    add(index, found, stay, wish.per, {node: dies[node] for node in stay})
    homes = {node // index.shape.of_supernode for node in stay}
    cabinets = {node // index.nodes for node in stay}
    spares = [node for node in nodes_in(index, place.spares) if not homes or node // index.shape.of_supernode in homes]
    spares.sort(key=lambda node: (node // index.nodes not in cabinets, node))
    found.spares = list(masks_of(index, set(spares[: wish.spares])).items())
    found.cpus = cut(place.cpus, wish.cpus, stay)
    found.mem = cut(place.mem, wish.mem, stay)
    return found


# ---- elsewhere


def _with_spare(index: Index, kept: Place, wish: Wish, node: int) -> Iterable[Place]:
    """The place with one or another of its spares as a member, the nearest first."""
    cabinet = node // index.nodes
    sound = {spare: index.shape.dies & ~index.broken.get(spare, 0) for spare in nodes_in(index, kept.spares)}
    spares = [spare for spare, dies in sound.items() if index.up[spare] and enough(dies, wish.per)]
    for spare in sorted(spares, key=lambda s: (s // index.nodes != cabinet, abs(s - node), s)):
        found = copied(kept)
        found.spares = list(masks_of(index, nodes_in(index, kept.spares) - {spare}).items())
        add(index, found, {spare}, wish.per, sound)
        yield tidy(index, found)
