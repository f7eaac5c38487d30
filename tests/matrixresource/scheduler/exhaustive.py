"""Every possibility of a very small machine, tried: what fits, and the least that would have to change.

Knows nothing of the index: it looks at who holds what, node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product

from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.request import Placement, PlacementRequest

Free = dict[int, int]  # dies free by node that is up


def free_dies(ledger: Ledger, places: Iterable[Placement]) -> Free:
    broken = ledger.index.faulty_dies
    free = {node: ledger.shape.dies & ~broken.get(node, 0) for node, up in enumerate(ledger.index.up) if up}
    for place in places:
        for node, dies in pieces(ledger, place):
            if node in free:
                free[node] &= ~dies
    return free


def pieces(ledger: Ledger, place: Placement) -> list[tuple[int, int]]:
    nodes = ledger.shape.nodes
    whole = [c * nodes + o for c, mask in (*place.whole, *place.spares) for o in range(nodes) if mask >> o & 1]
    return [(node, ledger.shape.dies) for node in whole] + place.parts


def npus(dies: int) -> int:
    return sum(dies >> bit & 3 == 3 for bit in range(0, dies.bit_length(), 2))


def fits(ledger: Ledger, request: PlacementRequest, gone: Iterable[str] = (), free: Free | None = None) -> bool:
    """Whether any set of nodes serves the request once some have left."""
    gone = set(gone)
    current = {name: each.place for name, each in ledger.allocations.items() if name not in gone}
    free = free_dies(ledger, current.values()) if free is None else free
    shape = ledger.shape
    size = {"cabinet": shape.nodes, "supernode": shape.nodes_per_supernode, "": shape.all_nodes}
    room = [
        node
        for node, dies in free.items()
        if (npus(dies) >= request.npus_per_node if request.npus_per_node >= 1 else dies)
    ]
    whole = [node for node, dies in free.items() if dies == shape.dies]
    for rule, inside in ((request.anti_affinity, False), (request.affinity, True)):
        theirs = [current[other].cabinets(shape.nodes) for other in rule.others if other in current] if rule else []
        room = [node for node in room if all((node // shape.nodes in cabinets) is inside for cabinets in theirs)]
    if request.nodes % request.supernode_block:
        return False
    for nodes in combinations(room, request.nodes):
        domains = {node // size[request.required_domain] for node in nodes}
        if len(domains) > 1:
            continue
        if any(count % request.cabinet_block for count in Counter(node // shape.nodes for node in nodes).values()):
            continue
        if (
            request.spread
            and max(Counter(n // size[request.spread.over] for n in nodes).values()) > request.spread.most
        ):
            continue
        left = [n for n in whole if n not in nodes and n // size[request.required_domain] in domains]
        if len(left) >= request.spares:
            return True
    return False


def least_release(ledger: Ledger, request: PlacementRequest) -> float | None:
    """The fewest NPUs of allocations whose end makes it fit."""
    found = [
        sum(ledger.allocations[name].request.npus for name in names)
        for count in range(len(ledger.allocations) + 1)
        for names in combinations(ledger.allocations, count)
        if fits(ledger, request, names)
    ]
    return min(found, default=None)


def most_nodes(ledger: Ledger, request: PlacementRequest) -> int:
    return max((n for n in range(1, request.nodes) if fits(ledger, replace(request, nodes=n))), default=0)


def least_moved(ledger: Ledger, request: PlacementRequest) -> float | None:
    """The fewest NPUs that change nodes, one after another, so that it fits. Every allocation is a part of one node."""
    current = {name: each.place.parts[0] for name, each in ledger.allocations.items()}
    sizes = {name: npus(dies) for name, (_, dies) in current.items()}
    free = {
        node: npus(dies) for node, dies in free_dies(ledger, (e.place for e in ledger.allocations.values())).items()
    }
    sets = (names for count in range(len(current) + 1) for names in combinations(current, count))
    for names in sorted(sets, key=lambda names: sum(map(sizes.__getitem__, names))):
        for targets in product(free, repeat=len(names)):
            moves = [(current[n][0], to, sizes[n]) for n, to in zip(names, targets, strict=True)]
            if any(source == to for source, to, _ in moves) or not can_be_done(free, moves):
                continue
            after = dict(free)
            for source, to, count in moves:
                if source in after:
                    after[source] += count
                after[to] -= count
            if fits(ledger, request, free={node: (1 << 2 * count) - 1 for node, count in after.items()}):
                return float(sum(map(sizes.__getitem__, names)))
    return None


def can_be_done(free: Free, moves: list[tuple[int, int, int]]) -> bool:
    """Whether the moves have an order in which each finds room."""
    free, waiting = dict(free), list(moves)
    while waiting:
        ready = next((move for move in waiting if free[move[1]] >= move[2]), None)
        if ready is None:
            return False
        waiting.remove(ready)
        source, to, count = ready
        free[to] -= count
        if source in free:
            free[source] += count
    return True


def weaker(request: PlacementRequest) -> Iterator[tuple[str, str, PlacementRequest]]:
    """Every rule of the request made weaker, from little to nothing."""
    if request.required_domain == "cabinet":
        yield "within", "supernode", replace(request, required_domain="supernode")
    if request.spread:
        for most in range(request.spread.most + 1, request.nodes + 1):
            yield "spread", str(most), replace(request, spread=replace(request.spread, most=most))
    for spares in range(request.spares - 1, -1, -1):
        yield "spares", str(spares), replace(request, spares=spares)
    if request.cabinet_block > 1:
        yield "cell", "1", replace(request, cabinet_block=1)
    for key in ("anti_affinity", "affinity"):
        if getattr(request, key):
            yield key, "", replace(request, **{key: None})
