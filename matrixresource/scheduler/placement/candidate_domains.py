"""Where a request with constraints is searched for: one scope of cabinets after another, the tightest first."""

from __future__ import annotations

from collections.abc import Iterator

from matrixresource.scheduler.model.best_fit import CANDIDATES
from matrixresource.scheduler.model.bitmasks import low_bits
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import PlacementRequest

PARTIAL_SUPERNODES_MAX = 24  # how many supernodes without enough whole nodes are considered for parts


def scopes(index: FreeCapacityIndex, request: PlacementRequest) -> Iterator[range]:
    """Cabinets to consider together, the tightest first."""
    shape = index.shape
    if request.required_domain == "cabinet":
        for supernode in tight_supernodes(index, request):
            first = supernode * shape.cabinets
            least = (request.nodes if request.npus_per_node == index.npus else 0) + request.spares
            for row in index.cabinets_by_whole[supernode][least:]:
                for cabinet in low_bits(row, shape.cabinets):
                    yield range(first + cabinet, first + cabinet + 1)
        return
    for supernode in tight_supernodes(index, request):
        yield range(supernode * shape.cabinets, (supernode + 1) * shape.cabinets)


def tight_supernodes(index: FreeCapacityIndex, request: PlacementRequest) -> Iterator[int]:
    """Supernodes with enough whole nodes, those with the fewest first; for parts, a few that have less come before
    them."""
    needs_whole = request.npus_per_node == index.npus
    wanted = (request.nodes if needs_whole else 0) + request.spares
    if index.shape.supernodes == 1:
        yield 0
        return
    if not needs_whole and request.nodes:
        seen = 0
        for size in range(wanted, min(request.nodes + request.spares, index.shape.nodes_per_supernode + 1)):
            for supernode in low_bits(index.supernodes_by_whole[size], PARTIAL_SUPERNODES_MAX - seen):
                seen += 1
                yield supernode
        wanted += request.nodes
    sizes = index.present_counts >> wanted << wanted
    while sizes:
        low = sizes & -sizes
        sizes ^= low
        yield from low_bits(index.supernodes_by_whole[low.bit_length() - 1], index.shape.supernodes)


def partly_used_scopes(index: FreeCapacityIndex, request: PlacementRequest) -> Iterator[range]:
    """For parts without other constraints, among many supernodes: first where nodes in use have room, then the
    tightest."""
    cabinets, nodes = index.cabinets, index.nodes
    seen: set[int] = set()
    size = nodes if request.required_domain == "cabinet" else index.shape.nodes_per_supernode
    least = max(1, int(request.npus_per_node))
    for started in (
        *(index.nodes_with_free_die[:1] if request.npus_per_node < 1 else ()),
        *index.nodes_by_free_npus[least:],
    ):
        for node in low_bits(started, CANDIDATES * 2):
            domain = node // size
            if domain not in seen:
                seen.add(domain)
                yield range(domain, domain + 1) if size == nodes else range(domain * cabinets, (domain + 1) * cabinets)
    wanted = request.nodes + request.spares
    if request.required_domain == "cabinet":
        for count in range(wanted, nodes + 1):
            for supernode in low_bits(index.supernodes_by_cabinet[count], CANDIDATES):
                row = index.cabinets_by_whole[supernode][count]
                cabinet = supernode * cabinets + (row & -row).bit_length() - 1
                yield range(cabinet, cabinet + 1)
        return
    if (least := index.tightest_supernode_size(wanted)) >= 0:
        for supernode in low_bits(index.supernodes_by_whole[least], CANDIDATES):
            yield range(supernode * cabinets, (supernode + 1) * cabinets)


def scope_for_parts(index: FreeCapacityIndex, request: PlacementRequest) -> range | None:
    """Of the first few scopes in use that hold a gang of parts, the one where it uses the fewest cabinets, then the one
    with the fewest whole nodes; counted from the sets of nodes, without choosing any. None if none holds it."""
    nodes, wanted, started = index.nodes, request.nodes, index.partly_used_nodes(request.npus_per_node)
    full, tried = (1 << nodes) - 1, 0
    best: tuple[int, int, range] | None = None
    for scope in partly_used_scopes(index, request):
        here = started >> scope.start * nodes & (1 << len(scope) * nodes) - 1
        whole = count_whole_nodes(index, scope)
        if here.bit_count() + whole < wanted:
            continue
        counts = [0] * (nodes + 1)  # cabinets by how many of their nodes have room
        for cabinet in scope:
            counts[(here & full | index.whole[cabinet]).bit_count()] += 1
            here >>= nodes
        touched, missing = 0, wanted
        for room in range(nodes, 0, -1):
            some = min(counts[room], -(-missing // room))
            touched += some
            missing = max(0, missing - some * room)
        if best is None or (touched, whole) < best[:2]:
            best = touched, whole, scope
        tried += 1
        if tried >= CANDIDATES:
            break
    return None if best is None else best[2]


def count_whole_nodes(index: FreeCapacityIndex, scope: range) -> int:
    """The whole nodes of a cabinet or a supernode."""
    if len(scope) == index.cabinets:
        return index.whole_counts[scope.start // index.cabinets]
    return index.whole[scope.start].bit_count()
