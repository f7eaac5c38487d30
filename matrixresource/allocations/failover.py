"""Failover: who replaces a member that is given up. A successor, else the spare that is ready soonest, else what the
ledger finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace as changed_to

from sqlalchemy.orm import Session

from matrixcommon.model.hardware_names import NodeName
from matrixresource.allocations.apply_placement import apply_placement
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.allocations.promotion import fit_spares, in_use
from matrixresource.allocations.refusals import refusal
from matrixresource.scheduler.model.placement_arithmetic import copy_placement, masks_of, normalise, subtract
from matrixresource.scheduler.model.request import Placement
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow


class Failover:
    """Fills gaps among the members and spares of one allocation. The caller has opened the ledger."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync, assignments: NodeAssignments) -> None:
        self._store = store
        self._ledger = ledger
        self._assignments = assignments

    def replace_node(self, session: Session, allocation: AllocationRow, name: NodeName) -> bool:
        """Give up what the allocation holds of a node and replace it. Return False if it holds nothing there. Raises
        InsufficientCapacity."""
        nodes = self._store.allocated_to(session, allocation.name)
        lost = next((node for node in nodes if node.name == name), None)
        moves = _has_successors(nodes)
        if lost is not None:
            if lost.role == "member" and not self._promote_own(session, allocation, lost, nodes):
                self._replace_from_ledger(session, allocation, name)
            else:
                self._assignments.unassign(session, lost)
        elif any(part.node == name and not part.releasing for part in self._store.parts(session, allocation.name)):
            self._replace_from_ledger(session, allocation, name)
        else:
            return False
        if moves and not _has_successors(self._store.allocated_to(session, allocation.name)):
            allocation.moving_to = None  # its last successor was given up or became a member
        self._ledger.refresh(session, allocation)
        return True

    def refill(self, session: Session, allocation: AllocationRow) -> int:
        """Take as many missing spares as possible. Return how many."""
        before = self._count_spares(session, allocation)
        if before >= allocation.spares:
            return 0
        self._ledger.invalidate()
        place = self._ledger.ledger.refill(allocation.name)
        apply_placement(session, self._store, self._assignments, self._ledger, allocation, place)
        return self._count_spares(session, allocation) - before

    def _count_spares(self, session: Session, allocation: AllocationRow) -> int:
        return sum(node.role == "spare" for node in self._store.allocated_to(session, allocation.name))

    def _promote_own(self, session: Session, allocation: AllocationRow, lost: NodeRow, nodes: list[NodeRow]) -> bool:
        """Let a successor of the same rank, or a spare, take over. Return False if none is eligible."""
        successors = [n for n in nodes if n.role == "successor" and n.rank == lost.rank and in_use(n)]
        if successors:
            successors[0].role = "member"
            self._assignments.unassign(session, lost)
            return True
        ledger, numbers = self._ledger.ledger, self._ledger.numbers
        request = ledger.allocations[allocation.name].request
        members = {numbers[n.name] for n in nodes if n.role == "member" and n is not lost}
        eligible = list(fit_spares(self._ledger, request, nodes, members))
        # The ledger looks for a free node in the lost node's supernode before it takes a spare in another supernode.
        if any(
            number // ledger.shape.nodes_per_supernode != numbers[lost.name] // ledger.shape.nodes_per_supernode
            for number in members
        ):
            eligible = [node for node in eligible if node.supernode == lost.supernode]
        if not eligible:
            return False
        # Ready soonest: prepared ones first, then those in the lost node's own cabinet.
        eligible.sort(key=lambda node: (not node.ready, node.node_name.cabinet != lost.node_name.cabinet, node.name))
        rank = lost.rank
        self._assignments.unassign(session, lost)
        self._assignments.assign(session, allocation, eligible[0].node_name, "member", rank)
        return True

    def _replace_from_ledger(self, session: Session, allocation: AllocationRow, name: NodeName) -> None:
        """Take what the ledger finds under the constraints of the spec, or else with domain and spread only
        preferred."""
        ledger_sync = self._ledger
        ledger, number = ledger_sync.ledger, ledger_sync.numbers[name]
        request = ledger.allocations[allocation.name].request
        ledger_sync.invalidate()
        being_wiped = ledger_sync.nodes_being_wiped(session, allocation.name)
        with self._without_successors(session, allocation):
            place = ledger.fail_over(allocation.name, number, being_wiped)
        if place is None:
            raise refusal(
                self._store.nodes(session),
                ledger_sync,
                changed_to(request, nodes=1, spares=0, supernode_block=1, cabinet_block=1),
            )
        apply_placement(session, self._store, self._assignments, ledger_sync, allocation, place)

    @contextmanager
    def _without_successors(self, session: Session, allocation: AllocationRow) -> Iterator[None]:
        """Keep successors out of the allocation's placement meanwhile: they are taken, but may only replace their own
        predecessors."""
        ledger = self._ledger.ledger
        nodes = self._store.allocated_to(session, allocation.name)
        numbers = {self._ledger.numbers[node.name] for node in nodes if node.role == "successor"}
        successors = Placement(list(masks_of(ledger.index, numbers).items()))
        current = ledger.allocations[allocation.name]
        current.place = subtract(ledger.index, current.place, successors)
        try:
            yield
        finally:
            whole = copy_placement(current.place)
            whole.whole += successors.whole
            current.place = normalise(ledger.index, whole)


def _has_successors(nodes: Iterable[NodeRow]) -> bool:
    return any(node.role == "successor" for node in nodes)
