"""Where spares are placed: on whole nodes in the supernodes that a gang uses."""

from __future__ import annotations

from collections.abc import Iterable

from matrixresource.scheduler.model.bitmasks import lowest
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest


def place_spares(index: FreeCapacityIndex, request: PlacementRequest, scope: Iterable[int], place: Placement) -> bool:
    """Add whole nodes in the supernodes that the gang uses, from the fullest cabinets; with several supernodes, each
    gets spares in proportion to its members."""
    taken: dict[int, int] = {}
    for cabinet, mask in place.whole + place.spares:
        taken[cabinet] = taken.get(cabinet, 0) | mask
    for node, _ in place.parts:
        taken[node // index.nodes] = taken.get(node // index.nodes, 0) | 1 << node % index.nodes
    homes = {cabinet // index.cabinets for cabinet in place.cabinets(index.nodes)}
    left = request.spares
    free = {}
    for cabinet in scope:
        mask = index.whole[cabinet] & ~taken.get(cabinet, 0)
        if mask and (not homes or cabinet // index.cabinets in homes):
            free[cabinet] = mask
    if len(homes) > 1:
        return _distribute_spares(index, left, free, place)
    for cabinet in sorted(free, key=lambda c: (free[c].bit_count(), c)):
        take = min(left, free[cabinet].bit_count())
        place.spares.append((cabinet, lowest(free[cabinet], take)))
        left -= take
        if not left:
            return True
    return False


def _distribute_spares(index: FreeCapacityIndex, count: int, free: dict[int, int], place: Placement) -> bool:
    """One after another, to the supernode with the fewest for its members; `free` are nodes by cabinet."""
    members, spares = [0] * index.shape.supernodes, [0] * index.shape.supernodes
    for cabinet, mask in place.whole:
        members[cabinet // index.cabinets] += mask.bit_count()
    for node, _ in place.parts:
        members[node // index.shape.nodes_per_supernode] += 1
    for cabinet, mask in place.spares:
        spares[cabinet // index.cabinets] += mask.bit_count()
    taken: dict[int, int] = {}
    left = count
    while left and free:
        # Compared as fractions: its spares including the next one, over its members.
        home = min(
            {cabinet // index.cabinets for cabinet in free},
            key=lambda supernode: ((spares[supernode] + 1) / max(1, members[supernode]), supernode),
        )
        cabinet = min((each for each in free if each // index.cabinets == home), key=lambda c: (free[c].bit_count(), c))
        node = lowest(free[cabinet], 1)
        taken[cabinet] = taken.get(cabinet, 0) | node
        spares[home] += 1
        left -= 1
        free[cabinet] &= ~node
        if not free[cabinet]:
            del free[cabinet]
    place.spares += sorted(taken.items())
    return not left
