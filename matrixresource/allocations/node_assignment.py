"""NodeAssignments: record who has which node, together with what that requires of the node's agent.

Every spec of an agent has a generation, one above the previous: that fences a node that was given up while nobody could
reach it. Used inside a transaction of the allocator.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import NodeName
from matrixresource.contract.nodes import IN_PLACE
from matrixresource.store.allocation_tables import AllocationRow, AssignmentRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, PartitionRow


class NodeAssignments:
    """Takes nodes and parts of nodes for allocations, and releases them."""

    def __init__(self, store: ResourceStore) -> None:
        self._store = store

    # ---- whole nodes

    def assign(
        self, session: Session, allocation: AllocationRow, name: NodeName, role: str, rank: int | None
    ) -> NodeRow:
        """Assign a whole node to an allocation; its previous holder's agreement is not needed, the ledger has freed
        it."""
        node = self._store.node(session, name)
        if node.holder not in (None, allocation.name):
            raise Conflict(f"{name} is held by {node.holder}")  # the ledger of this transaction disagrees: a bug
        node.holder, node.role, node.rank = allocation.name, role, rank
        if allocation.bound:
            self.request_deploy(session, node, allocation)
        node.read_state()
        return node

    def unassign(self, session: Session, node: NodeRow) -> None:
        """Release a whole node; it is allocatable once its agent has cleaned it."""
        node.holder = node.role = node.rank = None
        self._cancel_repair(session, node)
        self._request_role(session, node, "Clean", None)
        node.read_state()

    def request_deploy(self, session: Session, node: NodeRow, allocation: AllocationRow) -> None:
        """Have the agent deploy the node for its role: a successor is deployed as the member it will become."""
        self._request_role(session, node, "Spare" if node.role == "spare" else "Member", allocation)

    def request_clean(self, session: Session, node: NodeRow) -> None:
        """Have the agent clean the node while its holder keeps it."""
        self._cancel_repair(session, node)
        self._request_role(session, node, "Clean", None)

    def request_task(self, session: Session, node: NodeRow, task: str, firmware: str | None = None) -> None:
        """Have the agent of a free node do a task once, when the node is clean. `firmware` is for the task update."""
        row = self._assignment(session, node)
        row.desired_role, row.allocation, row.rank, row.power = "Clean", None, None, "On"
        row.generation += 1
        row.task, row.task_generation, row.firmware = task, row.generation, firmware
        node.wanted_firmware = firmware
        node.task, node.desired_role, node.desired_power = task, "Clean", "On"
        node.wanted_generation = node.assignment_generation = row.generation

    def request_repair(self, session: Session, node: NodeRow, task: str) -> None:
        """Have a member's agent repair it in place. Nothing changes if that repair is already under way."""
        if node.task == task:
            return
        row = self._assignment(session, node)
        row.generation += 1
        row.task, row.task_generation = task, row.generation
        node.task = task
        node.wanted_generation = node.assignment_generation = row.generation

    def _cancel_repair(self, session: Session, node: NodeRow) -> None:
        """Cancel in-place repairs of a node that is being given up, even if they were waiting behind service or
        quarantine."""
        row = self._assignment(session, node)
        if row.task in IN_PLACE:
            row.task = None
        if node.task in IN_PLACE:
            node.task = None

    def request_retry(self, session: Session, node: NodeRow) -> None:
        """Have the agent repeat what is requested of it, including a task, by incrementing the generation."""
        row = self._assignment(session, node)
        row.generation += 1
        if node.task is not None:
            row.task_generation = row.generation
        node.wanted_generation = node.assignment_generation = row.generation

    def _request_role(self, session: Session, node: NodeRow, desired_role: str, holder: AllocationRow | None) -> None:
        """Set the requested role with the next generation, unless it is already requested."""
        row = self._assignment(session, node)
        # A clean node has no allocation: one that was never asked for anything else has nothing to do.
        allocation, rank, power = None, None, "On"
        if holder is not None and desired_role != "Clean":
            allocation, rank, power = holder.name, node.rank, holder.power
        if (row.desired_role, row.allocation, row.rank, row.power) == (desired_role, allocation, rank, power):
            return
        row.desired_role, row.allocation, row.rank, row.power = desired_role, allocation, rank, power
        row.generation += 1
        node.desired_role, node.desired_power = desired_role, power
        node.wanted_generation = node.assignment_generation = row.generation
        node.read_state()

    # ---- parts of nodes

    def assign_part(self, session: Session, allocation: AllocationRow, part: PartitionRow) -> None:
        """Assign a part of a node to an allocation."""
        node = self._store.node(session, NodeName(part.node))
        part.allocation, part.generation, part.releasing = allocation.name, 0, False
        session.add(part)
        node.shared_by += 1
        if allocation.bound:
            self.request_part(session, node, part)
        node.read_state()

    def request_part(self, session: Session, node: NodeRow, part: PartitionRow) -> None:
        """Have the agent prepare a part."""
        desired = part.desired().wire()
        row = self._assignment(session, node)
        others = [other for other in row.parts or [] if other["allocation"] != part.allocation]
        if desired in (row.parts or []):
            return
        part.releasing = False
        self._set_parts(node, row, part, [*others, desired])

    def release_part(self, session: Session, part: PartitionRow) -> None:
        """Have the agent wipe a part, which stays held until that is done. A part that no agent was asked to prepare is
        removed at once."""
        node = self._store.node(session, NodeName(part.node))
        row = self._assignment(session, node)
        others = [other for other in row.parts or [] if other["allocation"] != part.allocation]
        if part.releasing:
            return
        if len(others) == len(row.parts or []):
            self.delete_part(session, part)
            return
        part.releasing = True
        self._set_parts(node, row, part, others)

    def delete_part(self, session: Session, part: PartitionRow) -> None:
        """Remove a part from the tables."""
        node = self._store.node(session, NodeName(part.node))
        node.shared_by -= 1
        session.delete(part)
        node.read_state()

    def _set_parts(self, node: NodeRow, row: AssignmentRow, part: PartitionRow, parts: list[dict[str, object]]) -> None:
        row.parts = sorted(parts, key=lambda each: str(each["allocation"]))
        row.generation += 1
        node.assignment_generation = part.generation = row.generation

    def _assignment(self, session: Session, node: NodeRow) -> AssignmentRow:
        row = session.get(AssignmentRow, node.name)
        if row is None:
            row = AssignmentRow(
                name=node.name, generation=0, state="Wanted", desired_role="Clean", power="On", parts=[]
            )
            session.add(row)
        return row
