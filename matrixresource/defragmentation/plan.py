"""What it takes to make room, and whether a plan is still valid. Nothing is written here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.searches import search
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.contract.defragmentations import MoveView
from matrixresource.defragmentation.eligibility import Mover, migration_owner
from matrixresource.scheduler.changes.minimal_move_layout import satisfies
from matrixresource.scheduler.defragment.defragmentation import DefragmentationPlan, plan_defragmentation
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.defragmentations import DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, PartitionRow


@dataclass(frozen=True)
class RoomPlan:
    """The nodes that will be free, and the moves needed for that; `plan` is None if no move is needed."""

    nodes: list[NodeName]
    moves: list[MoveView]
    plan: DefragmentationPlan | None


def plan_room(session: Session, store: ResourceStore, ledger: LedgerSync, request: PlacementRequest) -> RoomPlan | None:
    """The plan that makes room for a spec by moving the fewest NPUs; None if none was found. Nodes that are being
    cleaned, or kept by a defragmentation, count as free."""
    owners = _migration_owners(session, store)
    rows = {row.name: row for row in store.nodes(session)}
    with ledger.invalidated_on_error(), _nodes_reopened(ledger, list(rows.values())):
        place = ledger.ledger.choose(request)
        if place is not None:
            return RoomPlan(_node_names(ledger, place), [], None)
        find = partial(plan_defragmentation, request=request, movable=frozenset(owners).__contains__)
        plan = search("room", find, ledger.ledger, partial(_is_current, ledger))
    if plan is None:
        return None
    moves = [
        MoveView.model_validate(
            {
                "allocation": step.name,
                "rank": rows[ledger.name(step.source)].rank,
                "from": ledger.name(step.source),
                "to": ledger.name(step.target),
                "npus": step.npus,
                "by": owners[step.name],
            }
        )
        for step in plan.steps
    ]
    return RoomPlan(_node_names(ledger, plan.place), moves, plan)


def _is_current(ledger: LedgerSync, plan: DefragmentationPlan | None) -> bool:
    """Whether everybody is still where the plan moves them from, and all that it needs is free or their own."""
    if plan is None:
        return True
    state = ledger.ledger
    for step in plan.steps:
        allocation = state.allocations.get(step.name)
        if allocation is None or ledger.name(step.source) not in ledger.nodes(allocation.place):
            return False
    sources = {ledger.name(step.source) for step in plan.steps}
    needed = {*(ledger.name(step.target) for step in plan.steps), *_node_names(ledger, plan.place)} - sources
    places = [divmod(ledger.numbers[node], state.shape.nodes) for node in needed]
    return all(state.index.whole[cabinet] >> offset & 1 for cabinet, offset in places)


def _node_names(ledger: LedgerSync, place: Placement) -> list[NodeName]:
    return [*ledger.nodes(place), *ledger.spares(place), *ledger.parts(place)]


def _migration_owners(session: Session, store: ResourceStore) -> dict[str, Mover]:
    parts: dict[str, list[PartitionRow]] = defaultdict(list)
    for part in store.parts(session):
        parts[part.allocation].append(part)
    found = {row.name: migration_owner(row, parts[row.name]) for row in store.allocations(session)}
    return {name: mover for name, mover in found.items() if mover is not None}


@contextmanager
def _nodes_reopened(ledger: LedgerSync, rows: Sequence[NodeRow]) -> Iterator[None]:
    index = ledger.ledger.index
    numbers = [ledger.numbers[row.name] for row in rows if row.name in ledger.numbers and row.fault() is None]
    closed = [number for number in numbers if not index.up[number]]
    for number in closed:
        ledger.ledger.set_up(number, True)
    try:
        yield
    finally:
        for number in closed:
            ledger.ledger.set_up(number, False)


def has_moved(step: MoveView, nodes: dict[str, NodeRow]) -> bool:
    """Whether a member is on the node that its move leads to."""
    before, after = nodes.get(step.source), nodes.get(step.to)
    has_member = after is not None and (after.holder, after.role, after.rank) == (step.allocation, "member", step.rank)
    return has_member and (before is None or (before.holder, before.rank) != (step.allocation, step.rank))


def move_started(step: MoveView, nodes: dict[str, NodeRow]) -> bool:
    """Whether the target node is held for the member."""
    after = nodes.get(step.to)
    return after is not None and (after.holder, after.role) == (step.allocation, "successor")


def blocking_reason(
    row: DefragmentationRow, nodes: dict[str, NodeRow], nodes_with_parts: Collection[str]
) -> str | None:
    """Why the remaining moves no longer make the room; None if they do. Nodes being cleaned count as free.
    `nodes_with_parts`: nodes of whose NPUs some are held in parts, which do not move; memory held for caches is not in
    the way."""
    holders = {name: node.holder for name, node in nodes.items()}
    for step in row.steps():
        if not step.open:
            continue
        member, target = nodes.get(step.source), nodes.get(step.to)
        if member is None or (holders[step.source], member.rank) != (step.allocation, step.rank):
            return f"{step.allocation} is no longer placed on {step.source}"
        fault = (
            "gone" if target is None else target.fault() or ("SharedByParts" if step.to in nodes_with_parts else None)
        )
        if fault is not None:
            return f"{step.to} is not available: {fault}"
        if holders[step.to] is not None and not move_started(step, nodes):
            return f"{holders[step.to]} is placed on {step.to}"
        holders[step.to], holders[step.source] = step.allocation, None
    for name in row.room:
        node = nodes.get(name)
        fault = "gone" if node is None else node.fault() or ("SharedByParts" if name in nodes_with_parts else None)
        if fault is not None:
            return f"{name}, which is part of the room, is {fault}"
        if holders[name] is not None:
            return f"{holders[name]} is placed on {name}"
    return None


def split_allocations(session: Session, ledger_sync: LedgerSync, row: DefragmentationRow) -> list[str]:
    """Allocations of which only some members have moved, and whose placement is violated by that."""
    steps = row.steps()
    moving = {step.allocation for step in steps if step.open} & {step.allocation for step in steps if not step.open}
    ledger = ledger_sync.open(session)
    current = {name: ledger.allocations[name] for name in sorted(moving) if name in ledger.allocations}
    return [name for name, each in current.items() if not satisfies(ledger, each.request, each.place)]
