"""The choice for constrained requests: spread, affinity, spares, gangs of parts of nodes, sockets and memory.

One scope at a time is tried, the tightest first: a cabinet, a supernode, or several supernodes where the request may
span them. In a scope the eligible cabinets are filled as in bin packing: fewest cabinets, the tightest last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import lcm

from matrixresource.scheduler.model.best_fit import CANDIDATES
from matrixresource.scheduler.model.bitmasks import lowest, part_dies
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.block_distribution import CabinetCapacity, distribute
from matrixresource.scheduler.placement.candidate_domains import (
    PARTIAL_SUPERNODES_MAX,
    count_whole_nodes,
    partly_used_scopes,
    scope_for_parts,
    scopes,
)
from matrixresource.scheduler.placement.named_memory import place_memory
from matrixresource.scheduler.placement.spares import place_spares


def choose(ledger: LedgerState, request: PlacementRequest) -> Placement | None:
    """A placement that satisfies every required constraint, or None."""
    index = ledger.index
    if request.required_domain == "cabinet" and request.nodes + request.spares > index.nodes:
        return None
    if lacks_whole_nodes(index, request):
        return None
    bound = (
        request.spread
        or request.anti_affinity
        or request.affinity
        or request.cpus
        or request.mem
        or request.cabinet_block > 1
    )
    if not bound and request.npus_per_node == index.npus:
        return choose_whole_with_spares(ledger, request)
    allowed = AffinityFilter(ledger, request)
    if allowed.is_unsatisfiable:
        return None
    small = not bound and index.shape.supernodes > 1
    if small and not request.spares and request.nodes > 1:
        if (scope := scope_for_parts(index, request)) is not None:
            return choose_in_scope(ledger, request, scope, allowed)
        return None if request.required_domain else choose_over_supernodes(ledger, request, allowed)
    best: tuple[tuple[int, int], Placement] | None = None
    tried = 0
    for scope in partly_used_scopes(index, request) if small else scopes(index, request):
        place = choose_in_scope(ledger, request, scope, allowed)
        if place is None:
            continue
        if request.nodes <= 1 and request.required_domain != "cabinet":
            return place
        rank = (len(place.cabinets(index.nodes)), count_whole_nodes(index, scope))
        if best is None or rank < best[0]:
            best = (rank, place)
        tried += 1
        if tried >= CANDIDATES:
            break
    if best is not None:
        return best[1]
    if request.required_domain or index.shape.supernodes == 1:
        return None
    return choose_over_supernodes(ledger, request, allowed)


def lacks_whole_nodes(index: FreeCapacityIndex, request: PlacementRequest) -> bool:
    """Whether even the domain with the most whole nodes has too few, which the index tells at once."""
    wanted = request.spares + (request.nodes if request.npus_per_node == index.npus else 0)
    return wanted > (
        index.most_whole_nodes() if request.required_domain or index.shape.supernodes == 1 else sum(index.whole_counts)
    )


def choose_whole_with_spares(ledger: LedgerState, request: PlacementRequest) -> Placement | None:
    """Whole nodes and spares without other constraints: found from the index alone."""
    index, chooser = ledger.index, ledger.chooser
    total = request.nodes + request.spares
    if request.required_domain == "cabinet" or (not request.required_domain and total <= index.nodes):
        cabinet = chooser.tightest_cabinet(total, request.lease_end)
        if cabinet >= 0:
            whole = index.whole[cabinet]
            members = lowest(whole, request.nodes)
            return Placement(whole=[(cabinet, members)], spares=[(cabinet, lowest(whole & ~members, request.spares))])
        if request.required_domain == "cabinet":
            return None
    if (least := index.tightest_supernode_size(total)) >= 0:
        supernode = chooser.choose_supernode(least, request.nodes)
        place = Placement(whole=chooser.fill_supernode(supernode, request.nodes, request.lease_end))
        first = supernode * index.cabinets
        return place if place_spares(index, request, range(first, first + index.cabinets), place) else None
    if (
        request.required_domain
        or sum(sorted(index.whole_counts)[-(request.nodes // request.supernode_block) :]) < total
    ):
        return None
    place_over = chooser.span_supernodes(request)
    if place_over is not None:
        homes = sorted({cabinet // index.cabinets for cabinet, _ in place_over.whole})
        cabinets = [c for s in homes for c in range(s * index.cabinets, (s + 1) * index.cabinets)]
        if place_spares(index, request, cabinets, place_over):
            return place_over
    free = {cabinet: whole for cabinet, whole in enumerate(index.whole) if whole}
    return choose_leaving_spares(index, request, free, range(index.shape.all_cabinets))


def choose_in_scope(
    ledger: LedgerState, request: PlacementRequest, scope: range, allowed: AffinityFilter
) -> Placement | None:
    """The whole request inside some cabinets, or None."""
    index = ledger.index
    place = Placement()
    free: dict[int, int] = {}
    if request.nodes:
        limit, domain = spread_limit(index, request.spread)
        free = free_nodes(index, request, scope, allowed)
        chosen = pack_nodes(free, request.nodes, limit, domain, index, request.cabinet_block)
        if chosen is None:
            return None
        add_chosen_members(index, request, chosen, place)
    if request.spares and not place_spares(index, request, scope, place):
        rearranged = None if request.npus_per_node == index.npus else choose_leaving_spares(index, request, free, scope)
        if rearranged is None:
            return None
        place = rearranged
    if request.cpus or request.mem:
        cabinets = scope if request.required_domain else range(index.shape.all_cabinets)
        if not place_pools(ledger, request, cabinets, place):
            return None
    return place


def choose_leaving_spares(
    index: FreeCapacityIndex, request: PlacementRequest, free: dict[int, int], scope: Iterable[int]
) -> Placement | None:
    """Members on some of the `free` nodes (masks by cabinet) that leave whole nodes for the spares, together with the
    spares.

    With very many supernodes the emptiest are considered first.
    """
    limit, domain = spread_limit(index, request.spread)
    each = limit if domain == 1 else index.nodes
    most = limit if domain > 1 else index.shape.nodes_per_supernode
    cabinets = index.cabinets
    for some in emptiest_first(index, list(scope), 2 * (request.nodes + request.spares)):
        rooms: dict[int, CabinetCapacity] = {}
        for cabinet in some:
            mask, whole = free.get(cabinet, 0), index.whole[cabinet]
            if mask or whole:
                started = (mask & ~whole).bit_count()
                rooms[cabinet] = CabinetCapacity(min(mask.bit_count(), each), whole.bit_count(), started)
        takes = distribute(
            rooms,
            request.nodes,
            request.spares,
            cabinet_block=request.cabinet_block,
            supernode_block=request.supernode_block,
            most=most,
            cabinets=cabinets,
        )
        if takes is not None:
            place = Placement()
            chosen = [(c, tightest_nodes(index, c, free[c], count)) for c, count in takes.items()]
            add_chosen_members(index, request, chosen, place)
            return place if place_spares(index, request, some, place) else None
    return None


def emptiest_first(index: FreeCapacityIndex, scope: list[int], wanted: int) -> Iterator[list[int]]:
    """Cabinets to consider: with many supernodes first those with the most whole nodes, then all."""
    cabinets = index.cabinets
    if len(scope) > PARTIAL_SUPERNODES_MAX * cabinets:
        found: list[int] = []
        whole = 0
        for supernode in sorted({cabinet // cabinets for cabinet in scope}, key=lambda s: (-index.whole_counts[s], s)):
            found += range(supernode * cabinets, (supernode + 1) * cabinets)
            whole += index.whole_counts[supernode]
            if whole >= wanted and len(found) >= PARTIAL_SUPERNODES_MAX * cabinets // 2:
                break
        if len(found) < len(scope):
            yield found
    yield scope


def free_nodes(
    index: FreeCapacityIndex, request: PlacementRequest, scope: range, allowed: AffinityFilter
) -> dict[int, int]:
    """By cabinet, the mask of nodes that have room for one member and that the constraints allow."""
    found: dict[int, int] = {}
    nodes, whole, first = index.nodes, index.whole, scope.start
    full = (1 << nodes) - 1
    here = 0
    if request.npus_per_node < index.npus:
        here = index.partly_used_nodes(request.npus_per_node) >> first * nodes & (1 << len(scope) * nodes) - 1
    one_by_one = allowed.applies_to_nodes()
    for cabinet in allowed.cabinets(cabinets_with_room(index, scope, here)):
        mask = whole[cabinet]
        if here:
            mask |= here >> (cabinet - first) * nodes & full
        if one_by_one:
            mask = sum(1 << o for o in index.offsets(mask) if allowed(cabinet * nodes + o))
        if mask:
            found[cabinet] = mask
    return found


def cabinets_with_room(index: FreeCapacityIndex, scope: range, here: int) -> list[int]:
    """The cabinets of a scope with whole nodes, or with some of the nodes in mask `here` (counted from the first
    on)."""
    whole, nodes, full = index.whole, index.nodes, (1 << index.nodes) - 1
    if here:
        return [c for c in scope if whole[c] or here >> (c - scope.start) * nodes & full]
    return [cabinet for cabinet in scope if whole[cabinet]]


def spread_limit(index: FreeCapacityIndex, rule: DomainConstraint | None) -> tuple[int, int]:
    """(most members in one domain, cabinets of such a domain); a constraint over nodes always holds."""
    if rule is None or rule.over == "node" or not rule.required:
        return index.shape.all_nodes, 1
    return rule.most, 1 if rule.over == "cabinet" else index.cabinets


def pack_nodes(
    free: dict[int, int], wanted: int, limit: int, domain: int, index: FreeCapacityIndex, cabinet_block: int = 1
) -> list[tuple[int, int]] | None:
    """(cabinet, mask) of the nodes chosen: fewest cabinets, the tightest last, partly used nodes before free ones.

    At most `limit` in a domain of `domain` cabinets; in each cabinet a multiple of `cabinet_block`.
    """
    room = {cabinet: min(mask.bit_count(), limit) // cabinet_block * cabinet_block for cabinet, mask in free.items()}
    taken_of: dict[int, int] = {}
    if domain > 1 and limit < wanted:
        domains = {cabinet // domain for cabinet in room}
        if len(domains) * limit < wanted:
            return None
    elif sum(room.values()) < wanted:
        return None
    waiting = sorted(room, key=lambda c: (-room[c], free[c].bit_count(), c))
    chosen: list[tuple[int, int]] = []
    while wanted:
        if domain > 1:
            for cabinet in waiting:
                left = limit - taken_of.get(cabinet // domain, 0)
                room[cabinet] = min(free[cabinet].bit_count(), left) // cabinet_block * cabinet_block
            waiting = [c for c in waiting if room[c] > 0]
            waiting.sort(key=lambda c: (-room[c], free[c].bit_count(), c))
        if not waiting:
            return None
        enough = [c for c in waiting if room[c] >= wanted]
        cabinet = min(enough, key=lambda c: (room[c], free[c].bit_count(), c)) if enough else waiting[0]
        waiting.remove(cabinet)
        take = min(room[cabinet], wanted)
        chosen.append((cabinet, take))
        taken_of[cabinet // domain] = taken_of.get(cabinet // domain, 0) + take
        wanted -= take
    return [(cabinet, tightest_nodes(index, cabinet, free[cabinet], take)) for cabinet, take in chosen]


def tightest_nodes(index: FreeCapacityIndex, cabinet: int, mask: int, wanted: int) -> int:
    """The nodes of a cabinet with the least room."""
    if mask.bit_count() == wanted or not mask & ~index.whole[cabinet]:
        return lowest(mask, wanted)
    base = cabinet * index.nodes
    order = sorted(index.offsets(mask), key=lambda offset: index.free[base + offset])
    return sum(1 << offset for offset in order[:wanted])


def add_chosen_members(
    index: FreeCapacityIndex, request: PlacementRequest, chosen: list[tuple[int, int]], place: Placement
) -> None:
    """The members, added to a placement."""
    if request.npus_per_node == index.npus:
        place.whole = chosen
        return
    for cabinet, mask in chosen:
        for offset in index.offsets(mask):
            node = cabinet * index.nodes + offset
            place.parts.append((node, part_dies(index.dies[node], request.npus_per_node)))


def place_pools(ledger: LedgerState, request: PlacementRequest, cabinets: Iterable[int], place: Placement) -> bool:
    """Sockets and GiB from any nodes that are up, the gang's own cabinets first. Affinities apply to members; without
    members, to the nodes that the pool is taken from."""
    index = ledger.index
    if request.mem_by_node:
        return place_memory(index, request, place)
    allowed = AffinityFilter(ledger, request) if not request.nodes else None
    own = place.cabinets(index.nodes)
    order = [*sorted(own), *(cabinet for cabinet in cabinets if cabinet not in own)]
    cpus, mem = request.cpus, request.mem
    for cabinet in order:
        for node in range(cabinet * index.nodes, (cabinet + 1) * index.nodes):
            if not index.up[node] or (allowed and not allowed(node)):
                continue
            if cpus and index.cpus[node]:
                take = min(cpus, index.cpus[node])
                place.cpus.append((node, take))
                cpus -= take
            if mem and index.mem[node]:
                take = min(mem, index.mem[node])
                place.mem.append((node, take))
                mem -= take
        if not cpus and not mem:
            return True
    return not cpus and not mem


def choose_over_supernodes(ledger: LedgerState, request: PlacementRequest, allowed: AffinityFilter) -> Placement | None:
    """A gang larger than any supernode: the emptiest supernodes entirely, in blocks, and the rest where it is
    tightest."""
    index, shape = ledger.index, ledger.shape
    if not request.nodes or (
        request.npus_per_node == index.npus and sum(index.whole_counts) < request.nodes + request.spares
    ):
        return None
    limit, domain = spread_limit(index, request.spread)
    frees = {}
    for supernode in range(shape.supernodes):
        scope = range(supernode * shape.cabinets, (supernode + 1) * shape.cabinets)
        frees[supernode] = free_nodes(index, request, scope, allowed)
    cabinet_block, each = request.cabinet_block, limit if domain == 1 else index.nodes
    room = {
        s: sum(min(m.bit_count(), each) // cabinet_block * cabinet_block for m in free.values())
        for s, free in frees.items()
    }
    if domain > 1:
        room = {s: min(r, limit) for s, r in room.items()}
    place = _fill_roomiest_first(index, request, frees, room)
    everywhere = range(shape.all_cabinets)
    if request.spares and place is not None and not place_spares(index, request, everywhere, place):
        free = {cabinet: mask for masks in frees.values() for cabinet, mask in masks.items()}
        place = choose_leaving_spares(index, request, free, everywhere)
    if place is None or ((request.cpus or request.mem) and not place_pools(ledger, request, everywhere, place)):
        return None
    return place


def _fill_roomiest_first(
    index: FreeCapacityIndex, request: PlacementRequest, frees: dict[int, dict[int, int]], room: dict[int, int]
) -> Placement | None:
    """Members without regard to spares: by supernode, the free nodes and how many of them it may give."""
    limit, domain = spread_limit(index, request.spread)
    step = lcm(request.supernode_block, request.cabinet_block)
    place, wanted = Placement(), request.nodes
    waiting = sorted(room, key=lambda s: (-room[s], s))
    while wanted and waiting:
        enough = [s for s in waiting if room[s] >= wanted]
        supernode = min(enough, key=lambda s: (room[s], s)) if enough else waiting[0]
        waiting.remove(supernode)
        take = min(room[supernode] // step * step, wanted)
        chosen = pack_nodes(frees[supernode], take, limit, domain, index, request.cabinet_block) if take else None
        if chosen is None:
            return None
        part = Placement()
        add_chosen_members(index, request, chosen, part)
        place.whole += part.whole
        place.parts += part.parts
        wanted -= take
    return None if wanted else place
