"""Layouts that keep present nodes: which members stay, where others join them, and whether a placement satisfies the
constraints.

Present nodes come first, as many as the constraints let stay; others are added in supernodes and cabinets already in
use, then in the tightest that hold the rest.
"""

from __future__ import annotations

from collections import Counter

from matrixresource.scheduler.model.bitmasks import lowest
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.placement_arithmetic import masks_of, members_of, nodes_in, used_nodes
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.block_distribution import CabinetCapacity, distribute


def satisfies(ledger: LedgerState, request: PlacementRequest, place: Placement, stayed: set[int] | None = None) -> bool:
    """Whether a placement has the requested members and satisfies every required constraint; it may have fewer spares.

    Members that `stayed` are exempt from affinity and anti-affinity: the other allocations may have moved since.
    """
    index, shape = ledger.index, ledger.shape
    members, spares = members_of(index, place), nodes_in(index, place.spares)
    if len(members) != request.nodes or len(spares) > request.spares or members & spares:
        return False
    size = shape.size_of(request.required_domain)
    if len({node // size for node in used_nodes(index, place)}) > 1:
        return False
    homes = Counter(node // shape.nodes_per_supernode for node in members)
    if any(count % request.supernode_block for count in homes.values()):
        return False
    if any(count % request.cabinet_block for count in Counter(node // shape.nodes for node in members).values()):
        return False
    if homes and {node // shape.nodes_per_supernode for node in spares} - set(homes):
        return False
    if request.spread is not None and request.spread.required and request.spread.over != "node":
        shares = Counter(node // shape.size_of(request.spread.over) for node in members)
        if max(shares.values(), default=0) > request.spread.most:
            return False
    allowed = AffinityFilter(ledger, request)
    return all(map(allowed, members - (stayed or set())))


def choose_members(
    ledger: LedgerState, request: PlacementRequest, own: set[int], scope: range, *, stay: bool, spares: int = 0
) -> set[int] | None:
    """The members inside some cabinets, with as many of `own` as possible; None if there are too few nodes.

    With `stay`, all of `own` are members, free or not, and `spares` whole nodes are found beside them; otherwise own
    nodes count only where they are free.
    """
    index = ledger.index
    allowed = AffinityFilter(ledger, request)
    if allowed.is_unsatisfiable or request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
        return None
    free = constrained.free_nodes(index, request, scope, allowed)
    present = masks_of(index, own)
    if stay:
        if any(cabinet not in scope for cabinet in present):
            return None
        for cabinet, mask in present.items():
            free[cabinet] = free.get(cabinet, 0) | mask
    present = {cabinet: mask & free.get(cabinet, 0) for cabinet, mask in present.items()}
    limit, domain = constrained.spread_limit(index, request.spread)
    each = limit if domain == 1 else index.nodes  # most members in one cabinet
    over_all = limit if domain > 1 else index.shape.nodes_per_supernode  # most members in one supernode
    if request.cabinet_block > 1 or spares:
        return _choose_in_blocks(index, request, free, present, scope, spares if stay else None)
    room, had = Counter[int](), Counter[int]()
    for cabinet, mask in free.items():
        room[cabinet // index.cabinets] += min(mask.bit_count(), each)
        had[cabinet // index.cabinets] += min(present.get(cabinet, 0).bit_count(), each)
    room = Counter({supernode: min(count, over_all) for supernode, count in room.items()})
    takes = divide_over_supernodes(
        room, Counter({s: min(n, over_all) for s, n in had.items() if n}), request.nodes, request.supernode_block
    )
    if takes is None:
        return None
    found: set[int] = set()
    for supernode, take in takes.items():
        here = {cabinet: mask for cabinet, mask in free.items() if cabinet // index.cabinets == supernode}
        found |= _choose_in_supernode(index, here, present, take, each)
    return None if stay and own - found else found


def _choose_in_blocks(
    index: FreeCapacityIndex,
    request: PlacementRequest,
    free: dict[int, int],
    present: dict[int, int],
    scope: range,
    spares: int | None,
) -> set[int] | None:
    """The same in cells, or with spares. Present nodes all stay when spares are counted; otherwise as many as
    possible."""
    limit, domain = constrained.spread_limit(index, request.spread)
    each = limit if domain == 1 else index.nodes
    rooms: dict[int, CabinetCapacity] = {}
    for cabinet in scope:
        mask, retained, whole = free.get(cabinet, 0), present.get(cabinet, 0).bit_count(), index.whole[cabinet]
        most = min(mask.bit_count(), each)
        if spares is None:
            rooms[cabinet] = CabinetCapacity(most, 0, retained)
        elif mask or whole:
            started = (mask & ~whole & ~present.get(cabinet, 0)).bit_count()
            rooms[cabinet] = CabinetCapacity(most, whole.bit_count(), started, retained)
    takes = distribute(
        rooms, request.nodes, spares, cabinet_block=request.cabinet_block, supernode_block=request.supernode_block,
        most=limit if domain > 1 else index.shape.nodes_per_supernode, cabinets=index.cabinets,
    )  # fmt: skip
    if takes is None:
        return None
    found: set[int] = set()
    for cabinet, count in takes.items():
        retained = lowest(present.get(cabinet, 0), min(count, present.get(cabinet, 0).bit_count()))
        others = constrained.tightest_nodes(index, cabinet, free[cabinet] & ~retained, count - retained.bit_count())
        found |= nodes_in(index, [(cabinet, retained | others)])
    return found


def divide_over_supernodes(room: Counter[int], own: Counter[int], wanted: int, block: int) -> dict[int, int] | None:
    """How many members each supernode gets, in whole blocks, so that as many as possible of its own stay."""
    takes: Counter[int] = Counter()
    fits = {supernode: count // block * block for supernode, count in room.items()}
    for supernode, count in sorted(own.items(), key=lambda entry: (-entry[1], entry[0])):
        takes[supernode] = min(fits[supernode], min(count, wanted) // block * block)
        wanted -= takes[supernode]
    for supernode in sorted(own, key=lambda s: (takes[s] - own[s], s)):  # a block that contains some of its own
        if wanted and own[supernode] > takes[supernode] and fits[supernode] > takes[supernode]:
            takes[supernode] += block
            wanted -= block
    for supernode in sorted(own, key=lambda s: (-takes[s], s)):
        more = min(fits[supernode] - takes[supernode], wanted)
        takes[supernode] += more
        wanted -= more
    waiting = {supernode: count for supernode, count in fits.items() if supernode not in own and count}
    while wanted and waiting:
        enough = [supernode for supernode, count in waiting.items() if count >= wanted]
        if enough:
            supernode = min(enough, key=lambda s: (waiting[s], s))
        else:
            supernode = min(waiting, key=lambda s: (-waiting[s], s))
        takes[supernode] = min(waiting.pop(supernode), wanted)
        wanted -= takes[supernode]
    return None if wanted else {supernode: take for supernode, take in takes.items() if take}


def _choose_in_supernode(
    index: FreeCapacityIndex, free: dict[int, int], present: dict[int, int], wanted: int, each: int
) -> set[int]:
    """Members in one supernode that has room: its own first, from the cabinets that have the most of them."""
    chosen: dict[int, int] = {}
    for cabinet in sorted(free, key=lambda c: (-present.get(c, 0).bit_count(), c)):
        count = min(present.get(cabinet, 0).bit_count(), each, wanted)
        if count:
            chosen[cabinet] = lowest(present[cabinet], count)
            wanted -= count
    room = {c: min(mask.bit_count(), each) - chosen.get(c, 0).bit_count() for c, mask in free.items()}
    waiting = {cabinet: count for cabinet, count in room.items() if count > 0}
    while wanted:
        started = [cabinet for cabinet in waiting if cabinet in chosen]
        enough = [cabinet for cabinet in started or waiting if waiting[cabinet] >= wanted]
        if enough:
            cabinet = min(enough, key=lambda c: (waiting[c], c))
        else:
            cabinet = min(started or waiting, key=lambda c: (-waiting[c], c))
        count = min(waiting.pop(cabinet), wanted)
        retained = chosen.pop(cabinet, 0)
        chosen[cabinet] = retained | constrained.tightest_nodes(index, cabinet, free[cabinet] & ~retained, count)
        wanted -= count
    return nodes_in(index, list(chosen.items()))
