"""apply_placement: change what an allocation holds in the tables to the placement chosen by the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import PartitionRow
from matrixresource.store.topology_versions import current_version


def apply_placement(
    session: Session,
    store: ResourceStore,
    assignments: NodeAssignments,
    ledger: LedgerSync,
    allocation: AllocationRow,
    place: Placement,
) -> bool:
    """Take what is new and release what is no longer in `place`. Return True if anything changed.

    Members that stay keep their ranks as long as these are below the new size. New ones get the lowest free ranks in
    the order of their nodes, so that the ranks of a block are consecutive. Successors of a move are left alone.
    """
    rows = store.allocated_to(session, allocation.name)
    current = {node.node_name: node for node in rows if node.role != "successor"}
    successors = {node.node_name for node in rows} - set(current)
    members, spares = [name for name in ledger.nodes(place) if name not in successors], set(ledger.spares(place))
    changed = False
    for name, node in current.items():
        if name not in spares and name not in members:
            assignments.unassign(session, node)
            changed = True
    ranked = {name: node.rank for name, node in current.items() if node.role == "member"}
    remaining = {name for name in members if name in ranked and _is_below(ranked[name], len(members))}
    ranks = _free_ranks(ranked[name] for name in remaining)
    for name in members:
        if name not in remaining:
            assignments.assign(session, allocation, name, "member", next(ranks))
            changed = True
    for name in sorted(spares):
        if name not in current or current[name].role != "spare":
            assignments.assign(session, allocation, name, "spare", None)
            changed = True
    parts = {part.node: part for part in store.parts(session, allocation.name) if not part.releasing}
    changed |= _apply_parts(session, store, assignments, allocation, parts, ledger.parts(place))
    return changed


def yield_place(
    session: Session, store: ResourceStore, ledger: LedgerSync, victim: AllocationRow, place: Placement
) -> None:
    """Take from a preempted allocation what the preemptor gets; the rest stays its own until it has been cleaned."""
    taken, parts = {*ledger.nodes(place), *ledger.spares(place)}, ledger.parts(place)
    for node in store.allocated_to(session, victim.name):
        if (
            node.node_name in taken or node.node_name in parts
        ):  # the rest of such a node is not allocatable before it is clean
            node.holder = node.role = node.rank = None
    index = ledger.ledger.index
    for part in store.parts(session, victim.name):
        if part.node in taken:
            part.dies = 0
        elif (new := parts.get(NodeName(part.node))) is not None:
            part.dies &= ~new.dies
        number = ledger.numbers.get(part.node)
        if number is not None:  # sockets and GiB have no identity: the victim keeps as much as is free
            part.cpus, part.memory_gib = min(part.cpus, index.cpus[number]), min(part.memory_gib, index.mem[number])


def new_allocation(
    session: Session,
    name: str,
    request: AllocationRequest,
    placement_request: PlacementRequest,
    expires_at: float | None,
) -> AllocationRow:
    """Insert the row of an allocation that holds nothing and is not bound yet."""
    row = AllocationRow(
        name=name,
        project=request.project,
        labels=request.labels,
        state="Reserved",
        nodes=placement_request.nodes,
        npus=placement_request.npus,
        spares=request.spares,
        request=request.spec_dict(),
        expires_at=expires_at,
        topology_version=current_version(session),
    )
    session.add(row)
    return row


def _apply_parts(
    session: Session,
    store: ResourceStore,
    assignments: NodeAssignments,
    allocation: AllocationRow,
    current: Mapping[str, PartitionRow],
    desired: Mapping[NodeName, PartitionRow],
) -> bool:
    changed = False
    for name, part in current.items():
        if name not in desired:
            assignments.release_part(session, part)
            changed = True
    size = sum(bool(new.dies) for new in desired.values())
    ranked = {name: part.rank for name, part in current.items() if part.dies and _is_below(part.rank, size)}
    ranks = _free_ranks(rank for name, rank in ranked.items() if name in desired)
    for name, new in desired.items():
        old = current.get(name)
        rank = None if not new.dies else ranked[name] if name in ranked else next(ranks)
        if old is None:
            new.rank = rank
            assignments.assign_part(session, allocation, new)
            changed = True
        elif (old.dies, old.cpus, old.memory_gib, old.rank) != (new.dies, new.cpus, new.memory_gib, rank):
            old.dies, old.cpus, old.memory_gib, old.rank = new.dies, new.cpus, new.memory_gib, rank
            if allocation.bound:
                assignments.request_part(session, store.node(session, name), old)
            changed = True
    return changed


def _is_below(rank: int | None, size: int) -> bool:
    return rank is not None and rank < size


def _free_ranks(taken: Iterable[int | None]) -> Iterator[int]:
    used = set(taken)
    return (rank for rank in count() if rank not in used)
