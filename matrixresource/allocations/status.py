"""The status of an allocation: state, conditions and members, derived from its nodes and their agents' reports."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.contract.allocations import MemberView
from matrixresource.nodes.states import AVAILABLE
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.reservations import ReservationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import specs_at

POWER_ADJECTIVES = {"On": "active", "Off": "off"}
SPARES_STAND = {"On": "stand ready", "Off": "are off"}


class AllocationStatus:
    """Updates allocations after anything about them or their nodes has changed."""

    def __init__(self, store: ResourceStore, assignments: NodeAssignments) -> None:
        self._store = store
        self._assignments = assignments

    def reconcile(self, session: Session, allocation: AllocationRow, now: float) -> bool:
        """Derive the state. Return True if the allocation was released and is gone."""
        self._delete_wiped_parts(session, allocation)
        if allocation.state == "Releasing" and self._release_nodes(session, allocation):
            self._end_reservation(session, allocation.name)
            session.delete(allocation)
            return True
        members = self._members(session, allocation)
        allocation.members = [view.wire() for view in members]
        serving = [view for view in members if view.role in ("member", "pool")]
        broken = [view for view in serving if view.gone or view.health == "Unhealthy"]
        ready = sum(view.ready for view in serving)
        if allocation.state in ("Binding", "Degraded") and ready == len(serving) and not broken:
            allocation.move("Bound")
        elif allocation.state in ("Binding", "Bound") and broken:
            allocation.move("Degraded")
        spares = sum(view.ready for view in members if view.role == "spare") if allocation.bound else 0
        whole, enough = allocation.bound and ready == len(serving), spares >= allocation.spares
        reason = "NotBound" if not allocation.bound else "AllReady" if whole else "Waiting"
        message = (
            f"{ready if allocation.bound else 0} of {len(serving)} members are {POWER_ADJECTIVES[allocation.power]}"
        )
        allocation.set_condition("NodesReady", whole, reason, message, now)
        reason = "SparesReady" if enough else "SparesMissing"
        message = f"{spares} of {allocation.spares} spares {SPARES_STAND[allocation.power]}"
        allocation.set_condition("SparesAvailable", enough, reason, message, now)
        return False

    def _end_reservation(self, session: Session, name: str) -> None:
        """End the reservation together with the allocation of its name; a later allocation of that name is
        unrelated."""
        reservation = session.get(ReservationRow, name)
        if reservation is not None and reservation.state == "Active":
            reservation.move("Ended")

    def _members(self, session: Session, allocation: AllocationRow) -> list[MemberView]:
        views = [node.member_view() for node in self._store.allocated_to(session, allocation.name)]
        parts = [
            part
            for part in self._store.parts(session, allocation.name)
            if allocation.state == "Releasing" or not part.releasing
        ]
        nodes = {node.name: node for node in self._store.nodes(session, [part.node for part in parts])} if parts else {}
        specs = specs_at(session, (node.supernode for node in nodes.values()))
        of_parts = ((part, nodes[part.node]) for part in parts)
        return views + [part.member_view(node, specs[node.supernode].npu.dies) for part, node in of_parts]

    def _release_nodes(self, session: Session, allocation: AllocationRow) -> bool:
        # An unreachable node is fenced by its generation and quarantined until it proves to be clean. One whose agent
        # gave up and that is out of service is checked, which includes cleaning, before it returns.
        left = self._store.allocated_to(session, allocation.name)
        for node in left:
            failed = node.status == "Failed" and node.in_sync and node.desired_state != AVAILABLE
            if node.ready or node.agent == "Lost" or failed:
                node.holder = node.role = node.rank = None
                node.read_state()
        return not self._store.allocated_to(session, allocation.name) and not self._store.parts(
            session, allocation.name
        )

    def _delete_wiped_parts(self, session: Session, allocation: AllocationRow) -> None:
        releasing = [part for part in self._store.parts(session, allocation.name) if part.releasing]
        nodes = (
            {node.name: node for node in self._store.nodes(session, [part.node for part in releasing])}
            if releasing
            else {}
        )
        for part in releasing:
            if part.gone(nodes[part.node]):
                self._assignments.delete_part(session, part)
