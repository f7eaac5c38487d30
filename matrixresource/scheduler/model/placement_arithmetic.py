"""Arithmetic on placements: which nodes they include, and placements with more or less."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from matrixresource.scheduler.model.bitmasks import part_dies
from matrixresource.scheduler.model.free_capacity_index import EVEN, FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement


def members_of(index: FreeCapacityIndex, place: Placement) -> set[int]:
    """The nodes that its NPUs are on."""
    return nodes_in(index, place.whole) | {node for node, _ in place.parts}


def nodes_in(index: FreeCapacityIndex, masks: list[tuple[int, int]]) -> set[int]:
    return {cabinet * index.nodes + offset for cabinet, mask in masks for offset in index.offsets(mask)}


def masks_of(index: FreeCapacityIndex, nodes: AbstractSet[int]) -> dict[int, int]:
    """Nodes as one mask per cabinet."""
    masks: dict[int, int] = {}
    for node in sorted(nodes):
        cabinet, offset = divmod(node, index.nodes)
        masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
    return masks


def used_nodes(index: FreeCapacityIndex, place: Placement) -> set[int]:
    """Every node on which it holds anything."""
    pools = {node for node, _ in place.cpus} | {node for node, _ in place.mem}
    return members_of(index, place) | nodes_in(index, place.spares) | pools


def copy_placement(place: Placement) -> Placement:
    return Placement(list(place.whole), list(place.parts), list(place.spares), list(place.cpus), list(place.mem))


def add_members(
    index: FreeCapacityIndex,
    place: Placement,
    nodes: set[int],
    npus_per_node: float,
    dies: dict[int, int] | None = None,
) -> None:
    """Add members on nodes, using the dies given in `dies` for nodes named there and free dies otherwise."""
    if npus_per_node == index.npus:
        place.whole += masks_of(index, nodes).items()
        return
    for node in sorted(nodes):
        mine = (dies or {}).get(node, 0)
        sound = mine & ~index.faulty_dies.get(node, 0)
        found = next((each for each in (sound, mine) if has_npus(each, npus_per_node)), index.dies[node])
        place.parts.append((node, part_dies(found, npus_per_node)))


def has_npus(dies: int, npus: float) -> bool:
    """Whether these dies of a node make up `npus` NPUs, or one die."""
    return dies > 0 if npus < 1 else (dies & dies >> 1 & EVEN).bit_count() >= npus


def normalise(index: FreeCapacityIndex, place: Placement) -> Placement:
    """Merge into one entry per cabinet and per node."""
    place.whole = list(masks_of(index, nodes_in(index, place.whole)).items())
    place.spares = list(masks_of(index, nodes_in(index, place.spares)).items())
    for amounts in (place.cpus, place.mem):
        sums: dict[int, int] = {}
        for node, amount in amounts:
            sums[node] = sums.get(node, 0) + amount
        amounts[:] = sums.items()
    return place


def subtract(index: FreeCapacityIndex, place: Placement, part: Placement) -> Placement:
    """A placement without a part of it; where some dies of a node are removed, its others are left."""
    taken = dict.fromkeys(nodes_in(index, part.whole + part.spares), index.shape.dies)
    for node, dies in part.parts:
        taken[node] = taken.get(node, 0) | dies
    rest = Placement()
    rest.parts = [(node, left) for node, dies in place.parts if (left := dies & ~taken.get(node, 0))]
    for current, stays in ((place.whole, rest.whole), (place.spares, rest.spares)):
        nodes = nodes_in(index, current)
        stays += masks_of(index, nodes - set(taken)).items()
        started = ((node, index.shape.dies & ~taken[node]) for node in sorted(nodes & set(taken)))
        rest.parts += [(node, dies) for node, dies in started if dies]
    for had, gone, kept in ((place.cpus, part.cpus, rest.cpus), (place.mem, part.mem, rest.mem)):
        minus = dict(gone)
        kept += [(node, n) for node, amount in had if (n := amount - minus.get(node, 0))]
    return rest
