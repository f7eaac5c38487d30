"""Moves: place an allocation on other nodes, make before break.

Successors are taken from the free nodes and deployed beside the members whose ranks they will take over. The old
members serve until all ranks can cut over at once, so a move needs as many free nodes as it moves members, and none if
the present layout is already as good as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as changed_to
from functools import partial

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.searches import search
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.allocations.refusals import refusal
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.scheduler.changes import resize
from matrixresource.scheduler.model.request import Placement, PlacementRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow


class Migrations:
    """Begins, completes and cancels moves of whole nodes. The caller has opened the ledger."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync, assignments: NodeAssignments) -> None:
        self._store = store
        self._ledger = ledger
        self._assignments = assignments

    def begin(self, session: Session, allocation: AllocationRow, request: AllocationRequest) -> dict[NodeName, int]:
        """Take successors for the members that will be placed elsewhere; nothing held is given up. Return the final
        rank of each node.

        Repeated with the same spec, it finds the move in progress, as long as all nodes taken for it are fit.
        """
        allocation_request = changed_to(
            self._ledger.placement_request(request),
            lease_end=self._ledger.ledger.allocations[allocation.name].request.lease_end,
        )
        if allocation_request.npus_per_node != self._ledger.ledger.shape.npus or not allocation_request.nodes:
            raise InvalidField("only allocations of whole nodes can move; recreate one with parts", field="placement")
        rows = self._store.allocated_to(session, allocation.name)
        current = {node.node_name: node for node in rows if node.role != "spare"}
        unfit = {name for name, node in current.items() if node.agent != "Connected" or node.health == "Unhealthy"}
        ranks = ranks_after_move(current.values())
        if (
            allocation.moving_to == request.spec_dict()
            and len(ranks) == allocation_request.nodes
            and not unfit & set(ranks)
        ):
            return ranks
        numbers = self._ledger.numbers
        spares = {node.node_name for node in rows} - set(current)  # spares stay ready during the move
        avoid = allocation_request.excluded_nodes | {numbers[name] for name in unfit | spares}
        closed = [numbers[name] for name, node in current.items() if node.whole_fault() in ("Cordoned", "DomainClosed")]
        closed = [number for number in closed if number not in avoid]
        place = self._find_layout(
            allocation.name, changed_to(allocation_request, spares=0, excluded_nodes=avoid), closed
        )
        if place is None:
            self._ledger.invalidate()
            own = self._ledger.ledger.allocations[allocation.name].place
            self._ledger.ledger.remove_usage(allocation.name, own)  # for the refusal, what it holds counts as free
            raise refusal(self._store.nodes(session), self._ledger, allocation_request)
        ranks = assign_ranks(self._ledger.nodes(place), current, allocation_request.nodes)
        for name, node in current.items():
            if node.role == "successor" and ranks.get(name) != node.rank:
                self._assignments.unassign(session, node)
        for name, rank in ranks.items():
            if name not in current:
                self._assignments.assign(session, allocation, name, "successor", rank)
        allocation.moving_to = request.spec_dict()
        self._ledger.refresh(session, allocation)
        return ranks

    def _find_layout(self, name: str, request: PlacementRequest, closed: Sequence[int]) -> Placement | None:
        """The placement under `request`. Members on nodes that are closed to new work (`closed`) stay there, unless the
        request excludes the node."""
        ledger = self._ledger.ledger

        def is_current(found: Placement | None) -> bool:
            return found is None or resize.can_move(ledger, name, request, found)

        with self._ledger.invalidated_on_error():
            for number in closed:
                ledger.set_up(number, True)
            try:
                return search("layout", partial(resize.move, name=name, request=request), ledger, is_current)
            finally:
                for number in closed:
                    ledger.set_up(number, False)

    def cut_over(
        self, session: Session, allocation: AllocationRow, request: AllocationRequest, ranks: Mapping[NodeName, int]
    ) -> bool:
        """Turn successors into members and release the nodes they replace, all at once. Return True if anything
        changed."""
        changed = False
        for node in self._store.allocated_to(session, allocation.name):
            if node.node_name in ranks:
                changed |= (node.role, node.rank) != ("member", ranks[node.node_name])
                node.role, node.rank = "member", ranks[node.node_name]
                if allocation.bound:
                    self._assignments.request_deploy(session, node, allocation)
            elif node.role != "spare":
                self._assignments.unassign(session, node)
                changed = True
        spares = [node for node in self._store.allocated_to(session, allocation.name) if node.role == "spare"]
        for node in spares[request.spares :]:
            self._assignments.unassign(session, node)
        changed |= allocation.spares != request.spares
        allocation.nodes, allocation.npus, allocation.spares = (
            len(ranks),
            len(ranks) * self._ledger.ledger.shape.npus,
            request.spares,
        )
        allocation.request, allocation.moving_to = request.spec_dict(), None
        self._ledger.refresh(session, allocation)
        return changed

    def check_under_way(self, allocation: AllocationRow, request: AllocationRequest) -> None:
        """Raises Conflict unless the move in progress is for this spec or, without one, the allocation already has this
        spec."""
        spec = allocation.spec()
        if allocation.moving_to is not None:
            spec = AllocationRequest.from_stored(allocation.moving_to)
        if request.spec_dict() != spec.spec_dict():
            raise Conflict(f"{name_of(allocation.name)} has no move to this spec under way; begin it with PUT .../move")

    def ready_ranks(self, session: Session, allocation: AllocationRow, nodes: int) -> dict[NodeName, int]:
        """The rank of each node after the cut-over. Raises Conflict unless every rank has a node that is ready."""
        rows = self._store.allocated_to(session, allocation.name)
        ranks = {name: rank for name, rank in ranks_after_move(rows).items() if rank < nodes}
        if len(ranks) != nodes:
            raise Conflict(f"only {len(ranks)} of {nodes} ranks have a node to take them over; repeat the move")
        for node in rows:
            if node.role == "successor" and not node.ready:
                raise Conflict(f"{node.name} is not ready to take over rank {node.rank}")
        return ranks

    def abort(self, session: Session, allocation: AllocationRow) -> None:
        """Release the successors."""
        for node in self._store.allocated_to(session, allocation.name):
            if node.role == "successor":
                self._assignments.unassign(session, node)
        allocation.moving_to = None
        self._ledger.refresh(session, allocation)


def ranks_after_move(nodes: Iterable[NodeRow]) -> dict[NodeName, int]:
    """The nodes and ranks at the end of the move in progress; without one, the present ones."""
    successors = {node.node_name: node.rank or 0 for node in nodes if node.role == "successor"}
    replaced_ranks = set(successors.values())
    remaining = {n.node_name: n.rank or 0 for n in nodes if n.role == "member" and n.rank not in replaced_ranks}
    return remaining | successors


def assign_ranks(chosen: Iterable[NodeName], current: Mapping[NodeName, NodeRow], nodes: int) -> dict[NodeName, int]:
    """Let nodes keep their ranks where these still exist; the others get the remaining ranks in their order."""
    ranks: dict[NodeName, int] = {}
    for name in chosen:
        rank = current[name].rank if name in current else None
        if rank is not None and rank < nodes and rank not in ranks.values():
            ranks[name] = rank
    left = iter(sorted(set(range(nodes)) - set(ranks.values())))
    return ranks | {name: next(left) for name in chosen if name not in ranks}
