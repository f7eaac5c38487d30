"""Room for one more gang, or for a block, by moving others: the plan that moves the fewest NPUs.

For each set of nodes the gang could have, the tenants there must move elsewhere. Sets are tried in order of the NPUs on
them, which no plan can undercut; `STEPS_MAX` bounds the search. `plan_defragmentation` makes a plan for review whose
members move one after another; `plan_evacuation` is for moves that happen all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, lcm

from matrixresource.scheduler.defragment.search import (
    CHAIN_MAX,
    DIRECT_STEPS,
    SETS_MAX,
    WIDE_NODES,
    EvacuationSearch,
    Fragment,
    candidate_sets,
    candidate_targets,
    executable_order,
    fragments_by_node,
    immovable_allocations,
    search_targets,
)
from matrixresource.scheduler.metrics.capacity_metrics import largest_blocks, largest_blocks_of
from matrixresource.scheduler.model.bitmasks import part_dies
from matrixresource.scheduler.model.placement_arithmetic import copy_placement, masks_of
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.choose import choose
from matrixresource.scheduler.placement.reserved_capacity import nodes_closed

STEPS_MAX = 120_000


@dataclass(frozen=True)
class MigrationStep:
    """One member's move; by the time its step comes, its new node has room."""

    name: str
    source: int
    target: int
    npus: float


@dataclass(frozen=True)
class PlacementMove:
    """An allocation's placement before and after."""

    name: str
    old: Placement
    new: Placement
    npus: float


@dataclass(frozen=True)
class DefragmentationPlan:
    """Moves that make `place` free. `before` and `after` are the largest blocks, in whole nodes, of a domain of that
    level (cabinet, supernode, or "" for the machine); `npus` is how many move. `steps` can be carried out one after
    another. `exact`: the search was completed on a machine small enough to be searched entirely."""

    nodes: int
    over: str
    place: Placement
    before: int
    after: int
    npus: float
    moves: tuple[PlacementMove, ...]
    steps: tuple[MigrationStep, ...]
    exact: bool


@dataclass
class EvacuationPlan:
    """The gang's placement and the new placements of those it moves; `moved` counts NPUs. `steps` are in an executable
    order, or empty if only moving all at once works."""

    place: Placement
    moves: dict[str, Placement]
    moved: float
    steps: tuple[MigrationStep, ...] = ()
    exact: bool = False


def allow_all(name: str) -> bool:
    return True


def plan_defragmentation(
    ledger: LedgerState, request: PlacementRequest, steps: int = STEPS_MAX, movable: Callable[[str], bool] = allow_all
) -> DefragmentationPlan | None:
    """The moves, with as few NPUs as were found, after which the gang fits: for a refused request, or for a block
    given as `PlacementRequest(nodes, required_domain="cabinet")` or `"supernode"`. None if there is nothing to do or
    no way was found within the limit of steps. Only allocations that are `movable` move. Whole nodes only; nothing
    is changed."""
    found = (
        None
        if choose(ledger, request) is not None
        else plan_evacuation(ledger, request, steps, sequential=True, movable=movable)
    )
    if found is None:
        return None
    npus = {name: sum(step.npus for step in found.steps if step.name == name) for name in found.moves}
    moves = tuple(
        PlacementMove(name, ledger.allocations[name].place, new, npus[name]) for name, new in found.moves.items()
    )
    before = largest_blocks(ledger.index)[request.required_domain]
    after = largest_blocks_of(_whole_after(ledger, found.moves), ledger.shape)[request.required_domain]
    return DefragmentationPlan(
        request.nodes, request.required_domain, found.place, before, after, found.moved, moves, found.steps, found.exact
    )


def _whole_after(ledger: LedgerState, moves: dict[str, Placement]) -> list[int]:
    """The whole nodes of each cabinet after the moves."""
    shape, index = ledger.shape, ledger.index
    dies: dict[int, int] = {}
    for sign, places in ((1, [ledger.allocations[name].place for name in moves]), (-1, list(moves.values()))):
        for place in places:
            whole = [(c * shape.nodes + o, shape.dies) for c, mask in place.whole for o in index.offsets(mask)]
            for node, bits in [*whole, *place.parts]:
                dies[node] = dies.get(node, index.dies[node]) + sign * (bits & ~index.faulty_dies.get(node, 0))
    found = list(index.whole)
    for node, free in dies.items():
        cabinet, offset = divmod(node, shape.nodes)
        if free == shape.dies and index.up[node]:
            found[cabinet] |= 1 << offset
        else:
            found[cabinet] &= ~(1 << offset)
    return found


def plan_evacuation(
    ledger: LedgerState,
    request: PlacementRequest,
    steps: int = STEPS_MAX,
    *,
    sequential: bool = False,
    movable: Callable[[str], bool] = allow_all,
) -> EvacuationPlan | None:
    """How to make room, or None if no plan was found. Gangs of whole nodes only; nothing is changed.

    All moves happen at once unless they are to be made in sequence (`sequential`).
    """
    ruled = request.spread or request.anti_affinity or request.affinity or request.spares or request.cpus or request.mem
    if (
        request.npus_per_node != ledger.shape.npus
        or not request.nodes
        or ruled
        or request.nodes % lcm(request.supernode_block, request.cabinet_block)
    ):
        return None
    promised = (
        ledger.reserved_capacity.between(-inf, inf).nodes(ledger.index) if ledger.reserved_capacity else set[int]()
    )
    with nodes_closed(ledger.index, request.excluded_nodes | promised):
        return _search_plan(ledger, request, steps, sequential, movable)


def _search_plan(
    ledger: LedgerState, request: PlacementRequest, steps: int, sequential: bool, movable: Callable[[str], bool]
) -> EvacuationPlan | None:
    search = EvacuationSearch(
        ledger, list(ledger.index.dies), fragments_by_node(ledger), candidate_targets(ledger), sequential
    )
    for fragments in search.fragments.values():
        for fragment in fragments:
            search.fragments_of.setdefault(fragment.name, []).append(fragment)
    search.immovable = immovable_allocations(ledger) | {name for name in ledger.allocations if not movable(name)}
    search.chain = CHAIN_MAX if steps >= DIRECT_STEPS else 0
    for lower, nodes in candidate_sets(ledger, request, search.fragments, search.immovable, steps):
        if lower >= search.best_cost or search.steps > steps:
            break
        search.reserved = frozenset(nodes)
        waiting = sorted((p for node in nodes for p in search.fragments.get(node, ())), key=lambda p: (-p.npus, p.name))
        for fragment in waiting:
            search.dies[fragment.node] |= fragment.dies
        search_targets(search, waiting, 0.0, {}, steps, 0)
        for fragment in waiting:
            search.dies[fragment.node] &= ~fragment.dies
    if search.best_solution is None:
        return None
    plan = _build_plan(ledger, *search.best_solution)
    cut = (request.cabinet_block > 1 and request.required_domain != "cabinet") or (
        request.supernode_block > 1 and not request.required_domain
    )
    plan.exact = search.steps <= steps and 8 * steps >= SETS_MAX and ledger.shape.all_nodes <= WIDE_NODES and not cut
    return plan


def _build_plan(ledger: LedgerState, nodes: frozenset[int], moved: dict[Fragment, int]) -> EvacuationPlan:
    """The placements after everybody has moved at once."""
    shape = ledger.shape
    dies = list(ledger.index.dies)
    for fragment in moved:
        dies[fragment.node] |= fragment.dies
    places: dict[str, Placement] = {}
    for fragment, node in sorted(moved.items(), key=lambda entry: (-entry[0].npus, entry[0].name, entry[0].node)):
        if fragment.name not in places:
            places[fragment.name] = copy_placement(ledger.allocations[fragment.name].place)
        place = places[fragment.name]
        bits = part_dies(dies[node], fragment.npus)
        dies[node] &= ~bits
        _move_fragment(place, fragment, node, bits, shape.nodes, shape.npus)
    steps = tuple(
        MigrationStep(fragment.name, fragment.node, moved[fragment], fragment.npus)
        for fragment in executable_order(ledger, moved)
    )
    return EvacuationPlan(
        Placement(whole=list(masks_of(ledger.index, nodes).items())),
        places,
        sum(fragment.npus for fragment in moved),
        steps,
    )


def _move_fragment(place: Placement, fragment: Fragment, node: int, bits: int, nodes: int, npus: int) -> None:
    if fragment.npus < npus:
        place.parts = [(n, d) for n, d in place.parts if n != fragment.node] + [(node, bits)]
        return
    masks = dict(place.whole)
    cabinet, offset = divmod(fragment.node, nodes)
    masks[cabinet] &= ~(1 << offset)
    cabinet, offset = divmod(node, nodes)
    masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
    place.whole = [(c, mask) for c, mask in masks.items() if mask]
