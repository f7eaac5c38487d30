"""Changes of an allocation in place: it grows, shrinks, gives up a node, is laid out again, or refills its spares.

Each function returns the whole new placement, or None, and changes nothing; `Ledger` commits. Required constraints
apply to what stays and what is added together; preferences are kept where they fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as changed

from matrixresource.scheduler.changes import repair
from matrixresource.scheduler.changes.minimal_move_layout import choose_members, satisfies
from matrixresource.scheduler.changes.relayout import relayout, scopes_of, trim_amounts
from matrixresource.scheduler.model.bitmasks import lowest
from matrixresource.scheduler.model.free_capacity_index import EVEN, FreeCapacityIndex
from matrixresource.scheduler.model.placement_arithmetic import (
    add_members,
    copy_placement,
    has_npus,
    masks_of,
    members_of,
    nodes_in,
    normalise,
    used_nodes,
)
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.choose import choose_unreserved
from matrixresource.scheduler.placement.named_memory import kept_memory, resized_memory
from matrixresource.scheduler.placement.preferences import first_that_fits
from matrixresource.scheduler.placement.reserved_capacity import (
    conflicts_with_reservations,
    hide_reservations,
    nodes_closed,
)
from matrixresource.scheduler.placement.spares import place_spares


def resize(
    ledger: LedgerState, name: str, request: PlacementRequest, keep: list[int], warm: Sequence[int] = ()
) -> Placement | None:
    """Apply a change in size: first what is released, then what is added.

    Missing members are filled by its own spares in `warm`, in that order and as far as constraints and preferences
    allow, before free nodes; other nodes replace these spares. Missing spares never prevent a resize: they are taken
    when there are any.
    """
    index, old = ledger.index, ledger.allocations[name].place
    with hide_reservations(ledger, request):
        if request.mem_by_node:
            if conflicts_with_reservations(ledger, name, kept_memory(request, old), request.lease_end):
                return None
            return resized_memory(index, request, old)
        return first_that_fits(
            ledger.shape, request, lambda strict: _with_spares_first(ledger, name, request, strict, keep, warm)
        )


def _with_spares_first(
    ledger: LedgerState,
    name: str,
    request: PlacementRequest,
    strict: PlacementRequest,
    keep: list[int],
    warm: Sequence[int],
) -> Placement | None:
    """With as many spares as may join the members under the constraints of `strict`; else by whole blocks; else with
    none."""
    joined, promoted = members_of(ledger.index, ledger.allocations[name].place), list[int]()
    for node in warm:
        if len(joined) < request.nodes and repair.satisfies_constraints(ledger, strict, joined, node):
            joined.add(node)
            promoted.append(node)
    most, block = len(promoted), max(request.cabinet_block, request.supernode_block)
    for count in sorted({most, most - most % block, 0}, reverse=True):
        found = _shrink_and_grow(ledger, name, request, strict, keep, promoted[:count])
        if found is not None:
            return found
    return None


def _shrink_and_grow(
    ledger: LedgerState,
    name: str,
    request: PlacementRequest,
    strict: PlacementRequest,
    keep: list[int],
    promoted: Sequence[int],
) -> Placement | None:
    index, allocation = ledger.index, ledger.allocations[name]
    old = allocation.place
    missing_spares = max(0, allocation.request.spares - len(nodes_in(index, old.spares)))
    with_promoted = _with_promoted(index, old, promoted)
    smaller = changed(
        request,
        nodes=min(request.nodes, len(members_of(index, with_promoted))),
        npus_per_node=min(request.npus_per_node, allocation.request.npus_per_node),
    )
    shrunk = shrink(ledger, with_promoted, smaller, [*keep, *promoted])
    if conflicts_with_reservations(ledger, name, shrunk, request.lease_end):
        return None
    return grow(
        ledger,
        shrunk,
        changed(strict, spares=max(len(nodes_in(index, shrunk.spares)), request.spares - missing_spares)),
    )


def _with_promoted(index: FreeCapacityIndex, place: Placement, spares: Sequence[int]) -> Placement:
    """The placement with these of its spares as members on whole nodes."""
    if not spares:
        return place
    found = copy_placement(place)
    found.spares = list(masks_of(index, nodes_in(index, place.spares) - set(spares)).items())
    found.whole += masks_of(index, set(spares)).items()
    return normalise(index, found)


def replace(
    ledger: LedgerState, name: str, node: int, excluded_nodes: frozenset[int] = frozenset()
) -> Placement | None:
    """Give up a member or spare, with everything else it has on that node: a spare takes over, or else a free node.

    A spare that is given up is replaced by a free node. No other member moves. ValueError if it has nothing on that
    node.
    """
    index, allocation = ledger.index, ledger.allocations[name]
    request, old = allocation.request, allocation.place
    if node not in used_nodes(index, old):
        raise ValueError(f"{name} has nothing on node {node}")
    if request.mem_by_node:
        return None  # memory of a named node has no substitute
    kept = repair.without_node(index, old, node)
    count = len(nodes_in(index, old.spares))
    stayed = members_of(index, kept)
    with nodes_closed(index, excluded_nodes | {node}), hide_reservations(ledger, request):
        if not used_nodes(index, kept):
            return choose_unreserved(ledger, request)
        if node in members_of(index, old):
            for stepped_in, spares in _with_spare_promoted(index, kept, request, node, count):
                found = grow(ledger, stepped_in, changed(request, spares=spares), stayed)
                if found is not None:
                    return found
        wanted = changed(request, spares=count)
        return first_that_fits(ledger.shape, wanted, lambda strict: grow(ledger, kept, strict, stayed))


def move(ledger: LedgerState, name: str, request: PlacementRequest) -> Placement | None:
    """A layout for the new request that keeps as many of the present nodes as possible."""
    allocation = ledger.allocations[name]
    ledger.remove_usage(name, allocation.place)
    try:
        with hide_reservations(ledger, request):
            return first_that_fits(ledger.shape, request, lambda strict: relayout(ledger, allocation.place, strict))
    finally:
        ledger.add_usage(name, allocation.place, allocation.request.lease_end)


def can_move(ledger: LedgerState, name: str, request: PlacementRequest, place: Placement) -> bool:
    """Whether a layout that was found earlier is still available."""
    allocation = ledger.allocations[name]
    ledger.remove_usage(name, allocation.place)
    try:
        with hide_reservations(ledger, request):
            return ledger.index.is_unallocated(place) and satisfies(ledger, request, place)
    finally:
        ledger.add_usage(name, allocation.place, allocation.request.lease_end)


def refill(ledger: LedgerState, name: str) -> Placement:
    """Take as many missing spares as possible."""
    allocation = ledger.allocations[name]
    place = copy_placement(allocation.place)
    missing = allocation.request.spares - len(nodes_in(ledger.index, place.spares))
    if missing > 0:
        with hide_reservations(ledger, allocation.request):
            scope = scopes_of(ledger, allocation.request, used_nodes(ledger.index, place))[0]
            place_spares(ledger.index, changed(allocation.request, spares=missing), scope, place)
    return normalise(ledger.index, place)


# ---- growing


def grow(
    ledger: LedgerState, place: Placement, request: PlacementRequest, stayed: set[int] | None = None
) -> Placement | None:
    """Add to a placement what it lacks of a request; the index has the placement as taken. `stayed` is as in
    `satisfies`."""
    index = ledger.index
    found = _with_larger_parts(index, place, request.npus_per_node)
    scopes = scopes_of(ledger, request, used_nodes(index, place))
    if found is None or len(scopes) != 1:
        return None
    missing = max(0, request.spares - len(nodes_in(index, found.spares)))
    for spares in (
        (0, missing) if missing and request.cabinet_block == 1 else (missing,)
    ):  # rarely, members must leave room for them
        wider = _with_members(ledger, found, request, scopes[0], spares)
        if wider is not None and (
            not missing or place_spares(index, changed(request, spares=missing), scopes[0], wider)
        ):
            break
    else:
        return None
    found = wider
    cpus, mem = (
        wanted - sum(n for _, n in had) for wanted, had in ((request.cpus, found.cpus), (request.mem, found.mem))
    )
    if cpus > 0 or mem > 0:
        more = changed(request, cpus=max(0, cpus), mem=max(0, mem))
        if not constrained.place_pools(ledger, more, scopes[0], found):
            return None
    normalise(index, found)
    return found if satisfies(ledger, request, found, stayed) else None


def _with_members(
    ledger: LedgerState, place: Placement, request: PlacementRequest, scope: range, spares: int
) -> Placement | None:
    """The placement with the members it lacks, leaving whole nodes for `spares` spares."""
    found, own = copy_placement(place), members_of(ledger.index, place)
    if request.nodes <= len(own):
        return found
    members = choose_members(ledger, request, own, scope, stay=True, spares=spares)
    if members is None:
        return None
    add_members(ledger.index, found, members - own, request.npus_per_node)
    return found


def _with_larger_parts(index: FreeCapacityIndex, place: Placement, npus_per_node: float) -> Placement | None:
    """Each part enlarged on its node to `npus_per_node` NPUs, its own dies among them; None if a node is full or
    closed."""
    found = copy_placement(place)
    found.parts = []
    whole: set[int] = set()
    for node, dies in place.parts:
        wider = _larger_part(index.dies[node], dies, npus_per_node)
        if wider is None or (wider != dies and not index.up[node]):
            return None
        if wider == index.shape.dies:
            whole.add(node)
        else:
            found.parts.append((node, wider))
    found.whole += masks_of(index, whole).items()
    return found


def _larger_part(free: int, own: int, npus_per_node: float) -> int | None:
    if own.bit_count() == int(2 * npus_per_node):
        return own
    pairs = own & EVEN | own >> 1 & EVEN  # the NPUs of which it has any die
    both = (free | own) & (free | own) >> 1 & EVEN
    left = int(npus_per_node) - pairs.bit_count()
    if pairs & ~both or left < 0:
        return None
    others = both & ~pairs
    for _ in range(left):
        if not others:
            return None
        pairs |= others & -others
        others &= others - 1
    return pairs * 3


# ---- shrinking


def shrink(ledger: LedgerState, place: Placement, request: PlacementRequest, keep: list[int]) -> Placement:
    index = ledger.index
    members, stay = members_of(index, place), set(keep[: request.nodes])
    if not set(keep) <= members or len(stay) != request.nodes:
        raise ValueError(f"{request.nodes} members must stay, but `keep` names {len(stay)} of {len(members)}")
    found = Placement()
    dies = dict(place.parts) | dict.fromkeys(nodes_in(index, place.whole), index.shape.dies)
    add_members(index, found, stay, request.npus_per_node, {node: dies[node] for node in stay})
    homes = {node // index.shape.nodes_per_supernode for node in stay}
    cabinets = {node // index.nodes for node in stay}
    spares = [
        node for node in nodes_in(index, place.spares) if not homes or node // index.shape.nodes_per_supernode in homes
    ]
    spares.sort(key=lambda node: (node // index.nodes not in cabinets, node))
    found.spares = list(masks_of(index, set(spares[: request.spares])).items())
    found.cpus = trim_amounts(place.cpus, request.cpus, stay)
    found.mem = trim_amounts(place.mem, request.mem, stay)
    return found


# ---- replacing a node


def _with_spare_promoted(
    index: FreeCapacityIndex, kept: Placement, request: PlacementRequest, node: int, count: int
) -> Iterable[tuple[Placement, int]]:
    """Yield the placement with each of its spares in turn as a member, nearest first, and the number of spares it
    should have.

    A gang over several supernodes is repaired inside the lost member's supernode if possible: once it has no spare
    there, by a free node there, before a spare from another supernode.
    """
    cabinet, supernode = node // index.nodes, node // index.shape.nodes_per_supernode
    sound = {spare: index.shape.dies & ~index.faulty_dies.get(spare, 0) for spare in nodes_in(index, kept.spares)}
    spares = [spare for spare, dies in sound.items() if index.up[spare] and has_npus(dies, request.npus_per_node)]
    spares.sort(
        key=lambda s: (s // index.shape.nodes_per_supernode != supernode, s // index.nodes != cabinet, abs(s - node))
    )
    spans = any(each // index.shape.nodes_per_supernode != supernode for each in used_nodes(index, kept))
    for spare in (*spares, None):
        if spans and (spare is None or spare // index.shape.nodes_per_supernode != supernode):
            yield from _with_free_node(index, kept, request, node, count)
            spans = False
        if spare is None:
            return
        found = copy_placement(kept)
        found.spares = list(masks_of(index, nodes_in(index, kept.spares) - {spare}).items())
        add_members(index, found, {spare}, request.npus_per_node, sound)
        yield normalise(index, found), count - 1


def _with_free_node(
    index: FreeCapacityIndex, kept: Placement, request: PlacementRequest, node: int, count: int
) -> Iterable[tuple[Placement, int]]:
    """The placement with a free whole node of the same supernode as a member, from the fullest cabinet that allows
    it."""
    supernode = node // index.shape.nodes_per_supernode
    cabinets = range(supernode * index.cabinets, (supernode + 1) * index.cabinets)
    for cabinet in sorted(cabinets, key=lambda c: (index.whole[c].bit_count(), c)):
        if index.whole[cabinet]:
            free = next(iter(nodes_in(index, [(cabinet, lowest(index.whole[cabinet], 1))])))
            found = copy_placement(kept)
            add_members(index, found, {free}, request.npus_per_node, {free: index.shape.dies})
            yield normalise(index, found), count
