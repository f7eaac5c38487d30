"""Relocations: move one member to a named node, make before break.

A successor is taken and deployed beside the member; `:changeOver` completes it and `DELETE .../move` cancels it, as for
a move.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import find
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.contract.defragmentations import RelocateRequest
from matrixresource.scheduler.changes.repair import satisfies_constraints
from matrixresource.scheduler.placement.reserved_capacity import is_promised
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.defragmentations import DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow


class Relocations:
    """Begins relocations of whole nodes. The caller has opened the ledger."""

    def __init__(self, store: ResourceStore, ledger: LedgerSync, assignments: NodeAssignments) -> None:
        self._store = store
        self._ledger = ledger
        self._assignments = assignments

    def begin(self, session: Session, allocation: AllocationRow, request: RelocateRequest) -> None:
        """Take the successor. Repeated, it finds what was begun or has ended. Raises Conflict, InvalidField."""
        own_nodes = {node.node_name: node for node in self._store.allocated_to(session, allocation.name)}
        member, target = own_nodes.get(request.node), own_nodes.get(request.to)
        if member is None and target is not None and target.role == "member":
            return
        allocation_request = self._ledger.ledger.allocations[allocation.name].request
        if allocation_request.npus_per_node != self._ledger.ledger.shape.npus or not allocation_request.nodes:
            raise InvalidField("only members that hold a whole node can be relocated", field="node")
        if member is None or member.role != "member":
            raise InvalidField(f"{request.node} is not a member of {allocation.name}", field="node")
        if target is not None and target.role == "successor" and target.rank == member.rank:
            return
        if target is not None or any(node.role == "successor" for node in own_nodes.values()):
            raise Conflict(f"{allocation.name} is already moving; wait for that move to end, or cancel it")
        self._check_target(session, allocation, request, self._store.node(session, request.to), own_nodes)
        self._assignments.assign(session, allocation, request.to, "successor", member.rank)
        allocation.moving_to = allocation.request
        self._ledger.refresh(session, allocation)

    def _check_target(
        self,
        session: Session,
        allocation: AllocationRow,
        request: RelocateRequest,
        target: NodeRow,
        own_nodes: dict[NodeName, NodeRow],
    ) -> None:
        """Check the target. Only a plan's own move may use nodes that the plan keeps, or break a constraint until its
        next move."""
        obstacle = target.obstacle_to_npus(target.name in self._store.nodes_with_parts(session))
        if request.defragmentation is not None:
            row = find(session, DefragmentationRow, request.defragmentation)
            step = row.current_step() if row.state == "Running" else None
            wanted = (allocation.name, request.node, request.to)
            if step is None or step.state != "Moving" or (step.allocation, step.source, step.to) != wanted:
                raise Conflict(f"this is not the current move of defragmentation {row.name!r}")
            obstacle = None if target.reserved_for_plan == row.name and obstacle == "Kept" else obstacle
        if obstacle is not None:
            raise Conflict(f"{request.to} is not available: {obstacle}", field="to")
        numbers, ledger = self._ledger.numbers, self._ledger.ledger
        if is_promised(ledger, numbers[request.to], ledger.allocations[allocation.name].request.lease_end):
            raise Conflict(f"{request.to} is promised to a reservation", field="to")
        if request.defragmentation is None:
            others = {numbers[n.name] for n in own_nodes.values() if n.role == "member" and n.name != request.node}
            if not satisfies_constraints(
                ledger, ledger.allocations[allocation.name].request, others, numbers[request.to]
            ):
                raise Conflict(f"{request.to} would violate the placement of {allocation.name}", field="to")
