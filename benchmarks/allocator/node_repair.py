"""Node failures in the sequences that all compared allocators replay: affected allocations are repaired at once.

In these sequences no client requests a repair, so the rule is: a gang member moves to a spare, else to the nearest free
node. If no single node fits, the whole gang is placed anew, and what cannot be repaired is released. The service fails
over one member at a time instead (`Ledger.fail_over`).
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.allocator.ledger_verbs import allocations_on, has_room
from matrixresource.scheduler.changes.relayout import relayout, replace_pools
from matrixresource.scheduler.changes.repair import satisfies_constraints, without_node
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.bitmasks import lowest
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.placement import constrained
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.choose import choose_unreserved
from matrixresource.scheduler.placement.preferences import first_that_fits
from matrixresource.scheduler.placement.reserved_capacity import hide_reservations


def repair(ledger: Ledger, node: int) -> tuple[dict[str, Placement], list[str]]:
    """Repair the allocations on a failed node, which takes no new ones until it is up again. Returns the new placements
    by allocation, and the allocations that were released."""
    ledger.index.set_up(node, False)
    moved: dict[str, Placement] = {}
    lost: list[str] = []
    for name in allocations_on(ledger, node):
        allocation = ledger.allocations[name]
        ledger.remove_usage(name, allocation.place)
        with hide_reservations(ledger, allocation.request):
            place = repaired_placement(ledger, name, node)
        if place is None:
            del ledger.allocations[name]
            ledger.reservations.pop(name, None)
            lost.append(name)
            continue
        ledger.add_usage(name, place, allocation.request.lease_end)
        allocation.place = moved[name] = place
    return moved, lost


def repaired_placement(ledger: Ledger, name: str, node: int) -> Placement | None:
    """The placement without the node. The allocation's present one has just been returned to the index."""
    allocation = ledger.allocations[name]
    old, request = allocation.place, allocation.request
    cabinet = node // ledger.shape.nodes
    kept = without_node(ledger.index, old, node)
    short = sum(mask.bit_count() for _, mask in kept.whole) + len(kept.parts) < request.nodes
    alone = request.nodes == 1 and not request.spares
    if not alone:
        found = _with_replacement(ledger, name, request, kept, cabinet) if short else kept
        ruled = request.spread or request.anti_affinity or request.affinity or request.required_domain
        if found is None and request.cabinet_block > 1:  # move the whole cell to a free one
            return first_that_fits(ledger.shape, request, lambda firm: relayout(ledger, kept, firm)) or (
                choose_unreserved(ledger, without_spares(request)) if request.spares else None
            )
        if found is None and request.supernode_block > 1 and request.npus_per_node == ledger.shape.npus and not ruled:
            found = _with_moved_block(ledger, name, request, kept, cabinet)
        if found is not None and replace_pools(ledger, request, found):
            return found
    again = choose_unreserved(ledger, request)
    if again is None and request.spares:
        again = choose_unreserved(ledger, without_spares(request))
    return again


def without_spares(request: PlacementRequest) -> PlacementRequest:
    return replace(request, spares=0)


def _with_replacement(
    ledger: Ledger, name: str, request: PlacementRequest, kept: Placement, lost_cabinet: int
) -> Placement | None:
    """The placement with a replacement for the lost node: one of its own spares, else the nearest free node."""
    index, shape = ledger.index, ledger.shape
    nodes = shape.nodes
    members = {c * nodes + o for c, mask in kept.whole for o in index.offsets(mask)} | {n for n, _ in kept.parts}
    spares = [c * nodes + o for c, mask in kept.spares for o in index.offsets(mask)]
    homes = {n // shape.nodes_per_supernode for n in members}
    touched = {n // nodes for n in members}

    def far(node: int) -> tuple[bool, bool, int, int]:
        cabinet = node // nodes
        return (cabinet != lost_cabinet, cabinet not in touched, index.whole[cabinet].bit_count(), node)

    if request.supernode_block > 1:
        homes = {lost_cabinet // shape.cabinets}  # in another supernode it would split a block
    spares = [node for node in spares if request.supernode_block == 1 or node // shape.nodes_per_supernode in homes]
    spares = [node for node in spares if request.cabinet_block == 1 or node // nodes == lost_cabinet]
    for node in sorted(spares, key=far):
        if has_room(index, node, request.npus_per_node) and satisfies_constraints(ledger, request, members, node):
            cabinet, offset = divmod(node, nodes)
            kept.spares = [(c, m & ~(1 << offset) if c == cabinet else m) for c, m in kept.spares]
            kept.spares = [(c, m) for c, m in kept.spares if m]
            return _with_member(ledger, request, kept, node)
    alone = request.required_domain == "cabinet" or request.cabinet_block > 1
    around = range(lost_cabinet, lost_cabinet + 1) if alone else None
    homes = homes or {lost_cabinet // shape.cabinets}
    free: list[int] = []
    allowed = AffinityFilter(ledger, request)
    for supernode in [lost_cabinet // shape.cabinets] if around else sorted(homes):
        scope = around or range(supernode * shape.cabinets, (supernode + 1) * shape.cabinets)
        for cabinet, mask in constrained.free_nodes(index, request, scope, allowed).items():
            free += [cabinet * nodes + o for o in index.offsets(mask)]
    own = {c * nodes + o for c, mask in kept.spares for o in index.offsets(mask)}
    for node in sorted(set(free) - members - own, key=far):
        if satisfies_constraints(ledger, request, members, node):
            return _with_member(ledger, request, kept, node)
    return None


def _with_moved_block(
    ledger: Ledger, name: str, request: PlacementRequest, kept: Placement, lost_cabinet: int
) -> Placement | None:
    """The placement with the lost node's block moved to another supernode; the rest of the gang keeps its nodes."""
    supernode, left = lost_cabinet // ledger.shape.cabinets, request.supernode_block - 1
    stays: list[tuple[int, int]] = []
    for cabinet, mask in sorted(kept.whole, key=lambda entry: entry[1].bit_count()):
        if cabinet // ledger.shape.cabinets == supernode and left:
            leaves = lowest(mask, min(left, mask.bit_count()))
            left -= leaves.bit_count()
            mask &= ~leaves
        if mask:
            stays.append((cabinet, mask))
    found = Placement(stays, kept.parts, kept.spares, kept.cpus, kept.mem)
    ledger.add_usage(name, found, request.lease_end)
    block = (
        ledger.chooser.choose_gang(
            PlacementRequest(request.supernode_block, request.npus_per_node, "supernode", lease_end=request.lease_end)
        )
        if not left
        else None
    )
    ledger.remove_usage(name, found)
    if block is None:
        return None
    masks = dict(stays)
    for cabinet, mask in block.whole:
        masks[cabinet] = masks.get(cabinet, 0) | mask
    found.whole = list(masks.items())
    return found


def _with_member(ledger: Ledger, request: PlacementRequest, kept: Placement, node: int) -> Placement:
    cabinet, offset = divmod(node, ledger.shape.nodes)
    if request.npus_per_node < ledger.shape.npus:
        kept.parts.append((node, constrained.part_dies(ledger.index.dies[node], request.npus_per_node)))
        return kept
    masks = dict(kept.whole)
    masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
    kept.whole = list(masks.items())
    return kept
