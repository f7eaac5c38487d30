"""A new placement close to an old one: as many of its members, spares, sockets and GiB as possible stay."""

from __future__ import annotations

from dataclasses import replace

from matrixresource.scheduler.changes.minimal_move_layout import choose_members, satisfies
from matrixresource.scheduler.model.placement_arithmetic import add_members, masks_of, members_of, nodes_in, normalise
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.choose import choose_unreserved
from matrixresource.scheduler.placement.spares import place_spares


def relayout(ledger: LedgerState, old: Placement, request: PlacementRequest) -> Placement | None:
    """Place it in the domain where the most can stay, or anywhere if none of them fits. The old placement is given
    back."""
    index = ledger.index
    own, spares = members_of(index, old), nodes_in(index, old.spares)
    best: tuple[tuple[int, int], Placement] | None = None
    for scope in scopes_of(ledger, request, own) if own else ():
        members = choose_members(ledger, request, own, scope, stay=False)
        if members is None:
            continue
        found = Placement()
        add_members(
            index, found, members, request.npus_per_node, {node: dies & index.dies[node] for node, dies in old.parts}
        )
        homes = {node // index.shape.nodes_per_supernode for node in members}
        reusable_spares = {s for s in spares - members if index.whole[s // index.nodes] >> s % index.nodes & 1}
        reusable_spares = {
            s for s in reusable_spares if s // index.nodes in scope and s // index.shape.nodes_per_supernode in homes
        }
        found.spares = list(masks_of(index, set(sorted(reusable_spares)[: request.spares])).items())
        missing = request.spares - len(nodes_in(index, found.spares))
        if missing and not place_spares(index, replace(request, spares=missing), scope, found):
            continue
        inside = range(scope.start * index.nodes, scope.stop * index.nodes)
        for current, left, wanted, kept in (
            (old.cpus, index.cpus, request.cpus, found.cpus),
            (old.mem, index.mem, request.mem, found.mem),
        ):
            free = [(n, min(amount, left[n])) for n, amount in current if n in inside and index.up[n] and left[n]]
            kept += trim_amounts(free, wanted, members)
        if not replace_pools(ledger, request, found) or not satisfies(ledger, request, normalise(index, found)):
            continue
        rank = (len(members & own), -len(found.cabinets(index.nodes)))
        if best is None or rank > best[0]:
            best = (rank, found)
    return best[1] if best else choose_unreserved(ledger, request)


def scopes_of(ledger: LedgerState, request: PlacementRequest, nodes: set[int]) -> list[range]:
    """The cabinets of each domain that holds some of the nodes, the one with the most first."""
    size = ledger.shape.size_of(request.required_domain)
    cabinets = size // ledger.shape.nodes
    counts = {number: sum(node // size == number for node in nodes) for number in {node // size for node in nodes}}
    order = sorted(counts, key=lambda number: (-counts[number], number))
    return [range(number * cabinets, (number + 1) * cabinets) for number in order]


def trim_amounts(amounts: list[tuple[int, int]], wanted: int, stay: set[int]) -> list[tuple[int, int]]:
    """The amount `wanted` out of what is held, on the nodes in `stay` first."""
    found = []
    for node, amount in sorted(amounts, key=lambda entry: (entry[0] not in stay, -entry[1], entry[0])):
        if wanted > 0:
            found.append((node, min(amount, wanted)))
            wanted -= found[-1][1]
    return found


def replace_pools(ledger: LedgerState, request: PlacementRequest, place: Placement) -> bool:
    """Find elsewhere the sockets and memory that were on the lost node."""
    cpus = request.cpus - sum(amount for _, amount in place.cpus)
    mem = request.mem - sum(amount for _, amount in place.mem)
    if not cpus and not mem:
        return True
    index, nodes = ledger.index, range(ledger.shape.all_nodes)
    if request.required_domain:
        size = ledger.shape.size_of(request.required_domain)
        cabinets = place.used_cabinets(ledger.shape.nodes)
        if not cabinets:
            return False  # the domain can no longer be told
        first = min(cabinets) * ledger.shape.nodes // size * size
        nodes = range(first, first + size)
    for wanted, current, left in ((cpus, place.cpus, index.cpus), (mem, place.mem, index.mem)):
        missing = wanted
        amounts = dict(current)
        for node in nodes:
            if not missing:
                break
            room = left[node] - amounts.get(node, 0) if index.up[node] else 0
            if room > 0:
                take = min(room, missing)
                amounts[node] = amounts.get(node, 0) + take
                missing -= take
        if missing:
            return False
        current[:] = list(amounts.items())
    return True
