"""Answers about a request, none of which creates anything: would it fit, why not, what would help, and when.

- `diagnoses`: for the domains closest to fitting it, how many nodes they have for it and what blocks the others.
- `suggestions`: the smallest change of each kind: fewer nodes, one constraint relaxed, other allocations moved,
  released or preempted.
- `earliest_start`: when it fits if every lease ends as declared.
- `blast_radius`: what one failure would take of the placement.

Trials change the ledger and undo every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matrixresource.scheduler.changes import preemption
from matrixresource.scheduler.defragment import defragmentation
from matrixresource.scheduler.explain import earliest_start, relaxation, release_set
from matrixresource.scheduler.metrics.blast_radius import FailureImpact, blast_radius
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.scheduler.model.state import LedgerState
from matrixresource.scheduler.placement.affinity import AffinityFilter
from matrixresource.scheduler.placement.choose import choose
from matrixresource.scheduler.placement.emptiest_domains import emptiest_domains
from matrixresource.scheduler.placement.named_memory import memory_shortages
from matrixresource.scheduler.placement.reserved_capacity import hide_reservations
from matrixresource.topology.compiled import CompiledTopology

DOMAINS_SHOWN = 16
NARROW_NODES = 128  # the largest machine, in nodes, on which moves are searched without being asked for


@dataclass(frozen=True)
class DomainDiagnosis:
    """A cabinet or supernode by number: nodes with room for a member, nodes missing, and obstacles with their counts.

    Obstacles are nodes that are `down`, `allocated` or `promised` to a reservation; that `anti_affinity`, `affinity` or
    `avoid` rule out; that do not make up a whole `cell` (block in a cabinet), or that a `spread` leaves unused; and
    missing whole nodes for `spares`, `cpus` (sockets) and `mem` (GiB).
    """

    over: str
    number: int
    room: int
    short: int
    obstacles: dict[str, int]


@dataclass(frozen=True)
class Suggestion:
    """One way to make it fit, by `kind`:

    - `fewer`: the request with this many `nodes` (or, for pools, sockets and GiB in `cpus` and `mem`);
    - `relax`: its `rule` changed to `to` ("" for none);
    - `move`: move the allocations `names`, `npus` in all, as `plan` says;
    - `release`: release the allocations `names`, `npus` in all; `preempt`: preempt those, which have a lower priority.

    `exact`: proven that no smaller change of this kind suffices.
    """

    kind: str
    nodes: int = 0
    cpus: int = 0
    mem: int = 0
    rule: str = ""
    to: str = ""
    names: tuple[str, ...] = ()
    npus: float = 0.0
    exact: bool = False
    plan: defragmentation.DefragmentationPlan | None = None


@dataclass(frozen=True)
class SearchBudget:
    """How long to search: steps for a release and for moves, and whether moves are also searched for gangs larger than
    a cabinet and on machines of more than `NARROW_NODES` nodes (`wide`)."""

    release: int
    moves: int
    wide: bool


QUICK = SearchBudget(release=6, moves=10, wide=False)
THOROUGH = SearchBudget(release=50_000, moves=defragmentation.STEPS_MAX, wide=True)


@dataclass(frozen=True)
class PlacementExplanation:
    """`place` if it fits now, with the failure impacts in `blast_radius`; otherwise why not and what would help."""

    place: Placement | None
    diagnoses: tuple[DomainDiagnosis, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    earliest_start: float | None = None
    blast_radius: tuple[FailureImpact, ...] = ()


def explain_placement(
    ledger: LedgerState,
    request: PlacementRequest,
    now: float,
    budget: SearchBudget = QUICK,
    topologies: Sequence[CompiledTopology] = (),
) -> PlacementExplanation:
    """Everything that can be said about a request. `topologies`: the graphs of the supernodes, in order; without them
    `blast_radius` has no switches."""
    place = choose(ledger, request)
    if place is not None:
        return PlacementExplanation(place, earliest_start=now, blast_radius=blast_radius(ledger, place, topologies))
    return PlacementExplanation(
        None,
        diagnose_domains(ledger, request),
        tuple(suggest_changes(ledger, request, now, budget)),
        earliest_start.earliest_start(ledger, request, now),
    )


# ---- why not


def diagnose_domains(ledger: LedgerState, request: PlacementRequest) -> tuple[DomainDiagnosis, ...]:
    """The domains closest to fitting it, best first."""
    shape = ledger.shape
    size = shape.nodes if request.required_domain == "cabinet" else shape.nodes_per_supernode
    allowed = AffinityFilter(ledger, request)
    ruled = bool(allowed) or request.npus_per_node != shape.npus
    firsts = emptiest_domains(ledger, size, DOMAINS_SHOWN * (4 if ruled else 1))
    if not (allowed or request.excluded_nodes or ledger.reserved_capacity):
        found = [_diagnose_by_count(ledger, request, first, size) for first in firsts]
    else:
        with hide_reservations(ledger, request):
            shown = [_nodes_with_room(ledger, request, first, size) for first in firsts]
        rooms = zip(firsts, shown, strict=True)
        found = [_diagnose_by_node(ledger, request, first, size, allowed, room) for first, room in rooms]
    found.sort(key=lambda domain: (domain.short, domain.number))
    return tuple(found[:DOMAINS_SHOWN])


def _diagnose_by_count(ledger: LedgerState, request: PlacementRequest, first: int, size: int) -> DomainDiagnosis:
    """For requests without constraints on single nodes."""
    free = ledger.index.free[first : first + size]
    down = free.count(-1)
    rooms = _nodes_with_room(ledger, request, first, size)
    room, nodes = sum(rooms), ledger.shape.nodes
    cut = sum(
        sum(rooms[at : at + nodes]) % request.cabinet_block
        for at in (range(0, size, nodes) if request.cabinet_block > 1 else ())
    )
    return _diagnosis(ledger, request, first, size, room, cut, {"down": down, "allocated": size - down - room})


def _nodes_with_room(ledger: LedgerState, request: PlacementRequest, first: int, size: int) -> list[bool]:
    """For each node, whether it has room for a member."""
    free = ledger.index.free[first : first + size]
    if request.npus_per_node >= 1:
        return [npus >= request.npus_per_node for npus in free]
    return [npus >= 0 and dies > 0 for npus, dies in zip(free, ledger.index.dies[first : first + size], strict=True)]


def _diagnose_by_node(
    ledger: LedgerState, request: PlacementRequest, first: int, size: int, allowed: AffinityFilter, shown: list[bool]
) -> DomainDiagnosis:
    """Node by node; `shown` says for each whether it has room besides what is promised or to be avoided."""
    obstacles: dict[str, int] = {}
    usable: dict[int, int] = {}
    nodes, ruled, hidden = ledger.shape.nodes, bool(allowed), shown
    down = ledger.index.free[first : first + size].count(-1)
    if request.excluded_nodes or ledger.reserved_capacity:
        hidden = _nodes_with_room(ledger, request, first, size)
        for node, (room, usable_now) in enumerate(zip(hidden, shown, strict=True), first):
            if room and not usable_now:
                what = "avoid" if node in request.excluded_nodes else "promised"
                obstacles[what] = obstacles.get(what, 0) + 1
    current = size - down - sum(hidden)
    for node, usable_now in enumerate(shown, first):
        if usable_now:
            if ruled and not allowed(node):
                what = "anti_affinity" if request.anti_affinity else "affinity"
                obstacles[what] = obstacles.get(what, 0) + 1
            else:
                usable[node // nodes] = usable.get(node // nodes, 0) + 1
    obstacles.update(down=down, allocated=current)
    cut = sum(count % request.cabinet_block for count in usable.values())
    return _diagnosis(ledger, request, first, size, size - sum(obstacles.values()), cut, obstacles)


def _diagnosis(
    ledger: LedgerState,
    request: PlacementRequest,
    first: int,
    size: int,
    room: int,
    cut: int,
    obstacles: dict[str, int],
) -> DomainDiagnosis:
    """`room` is in nodes, of which `cut` do not make up a whole cell."""
    index = ledger.index
    obstacles["cell"] = cut
    room -= cut
    if request.spread is not None and request.spread.required and request.spread.over != "node":
        each = ledger.shape.nodes if request.spread.over == "cabinet" else size
        usable = max(1, size // each) * request.spread.most
        obstacles["spread"] = max(0, room - usable)
        room = min(room, usable)
    nodes = range(first, first + size) if request.required_domain else range(ledger.shape.all_nodes)
    for what, wanted, left in (("cpus", request.cpus, index.cpus), ("mem", request.mem, index.mem)):
        if wanted:
            obstacles[what] = max(0, wanted - sum(left[node] for node in nodes if index.up[node]))
    if request.mem_by_node:
        named = memory_shortages(index, request)
        obstacles["mem"] = sum(asked - there for node, (asked, there) in named.items() if node in nodes)
    cabinets = range(first // ledger.shape.nodes, (first + size) // ledger.shape.nodes)
    spares = request.spares - sum(index.whole[cabinet].bit_count() for cabinet in cabinets) if request.spares else 0
    if spares > 0 and request.npus_per_node < ledger.shape.npus:
        obstacles["spares"] = spares
    short = max(0, request.nodes + request.spares - room, spares)
    found = {what: count for what, count in obstacles.items() if count}
    return DomainDiagnosis(request.required_domain or "supernode", first // size, room, short, found)


# ---- what would help


def suggest_changes(
    ledger: LedgerState, request: PlacementRequest, now: float, budget: SearchBudget
) -> Iterator[Suggestion]:
    """The smallest change found of each kind that helps."""
    exact = request.unconstrained or request.nodes <= relaxation.EXHAUSTIVE_MAX
    if nodes := relaxation.most_nodes(ledger, request):
        yield Suggestion("fewer", nodes=nodes, exact=exact)
    if not request.nodes and (pools := relaxation.most_pools(ledger, request)) is not None:
        yield Suggestion("fewer", cpus=pools.cpus, mem=pools.mem, exact=True)
    for rule, to, _ in relaxation.relaxations(ledger, request):
        yield Suggestion("relax", rule=rule, to=to, exact=exact)
    small = request.nodes <= ledger.shape.nodes and ledger.shape.all_nodes <= NARROW_NODES
    if budget.wide or small:
        moving = defragmentation.plan_defragmentation(ledger, request, budget.moves)
        if moving is not None:
            names = tuple(sorted(move.name for move in moving.moves))
            yield Suggestion("move", names=names, npus=moving.npus, exact=moving.exact, plan=moving)
    if (release := release_set.find_release_set(ledger, request, budget.release)) is not None:
        yield Suggestion("release", names=release.names, npus=release.npus, exact=release.exact)
    if any(allocation.request.priority < request.priority for allocation in ledger.allocations.values()):
        names = tuple(sorted(preemption.victims(ledger, request, now) or ()))
        if names:
            yield Suggestion("preempt", names=names, npus=release_set.npus_of(ledger, list(names)))
