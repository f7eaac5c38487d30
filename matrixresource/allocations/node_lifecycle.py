"""NodeLifecycle: what administrators and rules request of nodes, besides what allocations request.

A verb records the desired state of a node and the task its agent has to do for that; the node's state follows from both
and from the agent's reports (`nodes/states.py`). Repeated, a verb changes nothing. The holder of a node loses it only
with `force`: its allocation then shows the member as lost, and the allocation's owner replaces it.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import name_of
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_assignment import NodeAssignments
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.nodes import InPlaceRepair, NodeTask, NodeVerbRequest, NodeView
from matrixresource.nodes.flap_rules import flap_rules
from matrixresource.nodes.states import (
    AVAILABLE,
    MANAGEABLE,
    NODE_STATES,
    QUARANTINED,
    RETIRED,
    SERVICING,
    STAGE_FAILED,
    STAGE_TOLERATED,
)
from matrixresource.store.node_events import record_node_event
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

DESIRED_BY_VERB: dict[str, tuple[str, NodeTask | None]] = {
    "enrol": (AVAILABLE, "verify"),
    "verify": (MANAGEABLE, "verify"),
    "inspect": (MANAGEABLE, "inspect"),
    "clean": (AVAILABLE, "clean"),
    "service": (SERVICING, None),
    "update": (SERVICING, "update"),
    "quarantine": (QUARANTINED, None),
    "recover": (AVAILABLE, "verify"),
    "retire": (RETIRED, None),
}
"""The desired state that each verb sets, and the task of the node's agent."""

FLAPPING = "Flapping"
"""The reason for quarantining a node that was lost and came back too often."""


class NodeLifecycle:
    """The verbs for administrators, and those that rules use."""

    def __init__(self, store: ResourceStore, allocator: Allocator, clock: Clock) -> None:
        self._store = store
        self._allocator = allocator
        self._assignments = NodeAssignments(store)
        self._clock = clock

    def execute_verb(self, name: NodeName, verb: str, request: NodeVerbRequest, *, by: str) -> NodeView:
        """Carry out one of `NODE_STATES.verbs`. Raises Conflict with the verbs that are allowed in the node's state,
        with the allocations that would lose the node, or with the firmware that is being written."""
        with self._store.transaction() as session:
            node = self._store.node(session, name)
            if (verb == "update") != (request.firmware is not None):
                raise InvalidField("`:update` needs `firmware`, and no other verb takes it", field="firmware")
            if self._is_requested(node, verb, request.firmware):
                return node.view()
            NODE_STATES.asked(verb, node.state)
            if verb == "update" and node.task == "update":
                raise Conflict(
                    f"firmware {node.wanted_firmware} is being written to {node.name}; ask for {request.firmware} "
                    "once that has ended",
                    field="firmware",
                )
            holders = self._holders(session, node)
            lost = self._check_holders(node, verb, holders, request.force)
            desired, task = DESIRED_BY_VERB[verb]
            message = f"{by} asked to {verb}" + (f" to {request.firmware}" if request.firmware else "")
            message += f": {request.reason}" if request.reason else ""
            message += "; forced: its holder lost it" if lost else ""  # everybody sees this: no names
            self._set_desired(session, node, desired, "Forced" if lost else "Requested", message)
            if verb == "enrol":
                node.status = None
            if desired == AVAILABLE:
                node.flap_score = 0.0  # an administrator has looked at it
            if task is not None and not holders:
                self._assignments.request_task(session, node, task, request.firmware)
            node.read_state()
            record_node_event(session, name, node.state, message, self._clock.now(), warning=bool(lost))
            self._allocator.reconcile(session, {*holders})
        return node.view()

    def quarantine(self, session: Session, node: NodeRow, reason: str, message: str) -> None:
        """Quarantine a node by a rule, whoever holds it."""
        self._set_desired(session, node, QUARANTINED, reason, message)
        node.read_state()
        record_node_event(session, node.name, QUARANTINED, f"{reason}: {message}", self._clock.now(), warning=True)

    def handle_stage_failure(self, session: Session, node: NodeRow, message: str) -> bool:
        """Handle a stage that failed for good. Quarantine the node and return True, unless the limit of nodes out of
        service in its domain is reached; then return False, and the node keeps its place and repeats its work
        (`retry_stage`)."""
        supernode = node.node_name.supernode
        out_of_service = [
            each.node_name
            for each in self._store.nodes(session)
            if each.supernode == supernode and _is_out_of_service(each)
        ]
        full = flap_rules().full_domain(STAGE_FAILED, node.node_name, out_of_service)
        if full is None:
            self.quarantine(session, node, STAGE_FAILED, message)
            return True
        text = f"{message}; {full} has reached its limit of nodes out of service, so this one retries instead"
        if (node.state_reason, node.state_message) != (STAGE_TOLERATED, text[:400]):
            node.state_reason, node.state_message = STAGE_TOLERATED, text[:400]
            record_node_event(session, node.name, STAGE_TOLERATED, text, self._clock.now(), warning=True)
        return False

    def retry_stage(self, session: Session, node: NodeRow) -> None:
        """Have the agent repeat the work whose stage failed."""
        self._assignments.request_retry(session, node)
        node.read_state()

    def verify(self, session: Session, node: NodeRow, message: str) -> None:
        """Have a free node checked by a rule; it is Available again once the check has passed."""
        self._set_desired(session, node, AVAILABLE, "Verifying", message)
        self._assignments.request_task(session, node, "verify")
        node.read_state()

    def repair(self, name: str, node: NodeName, task: InPlaceRepair) -> AllocationView:
        """Have the agent of a member of allocation `name` repair it in place; meanwhile the member is not ready.

        Repeated while that is under way, it changes nothing. Raises Conflict for a node that is not a whole member, or
        that is not serving.
        """
        with self._store.transaction() as session:
            allocation = self._store.allocation(session, name)
            found = next((each for each in self._store.allocated_to(session, name) if each.name == node), None)
            if found is None or found.role != "member":
                raise Conflict(f"{node} is not a member of {name!r} that holds a whole node", field="node")
            serves = allocation.bound and allocation.power == "On" and allocation.state != "Releasing"
            if not serves or found.agent == "Lost" or found.desired_state != AVAILABLE:
                raise Conflict(f"{node} cannot be repaired in place: it is not serving", field="node")
            self._assignments.request_repair(session, found, task)
            self._allocator.reconcile(session, {name})
        return allocation.shown()

    def _is_requested(self, node: NodeRow, verb: str, firmware: str | None) -> bool:
        desired, task = DESIRED_BY_VERB[verb]
        if verb == "update":
            requested = node.wanted_firmware if node.task == "update" else node.firmware
            return node.state == desired and requested == firmware
        if node.desired_state != desired:
            return False
        under_way = task is not None and node.task == task
        return under_way or task is None or node.state == desired == AVAILABLE

    def _check_holders(self, node: NodeRow, verb: str, holders: list[str], force: bool) -> list[str]:
        """The holders that lose the node by this verb. Raises Conflict if they must not, or would without `force`."""
        if not holders:
            return []
        blocking = [{"domain": node.name, "allocations": holders}]
        if verb == "recover" and node.state != "Draining":
            raise Conflict(
                f"{node.name} is {node.state} and still a member of {', '.join(map(name_of, holders))}, which must "
                "replace it first",
                blocking=blocking,
            )
        risk = NODE_STATES.verbs[verb].risk
        if risk and not force:
            raise Conflict(
                f"{node.name} is held by {', '.join(map(name_of, holders))}; use :service to drain it first, "
                f"or force it: {risk}",
                blocking=blocking,
            )
        return holders if risk else []

    def _set_desired(self, session: Session, node: NodeRow, desired: str, reason: str, message: str) -> None:
        node.desired_state, node.state_reason, node.state_message = desired, reason, message[:400]
        node.task = None
        node.generation += 1

    def _holders(self, session: Session, node: NodeRow) -> list[str]:
        parts = {part.allocation for part in self._store.parts(session, node=node.name)} if node.shared_by else set()
        return sorted({*parts, *([node.holder] if node.holder is not None else [])})


def _is_out_of_service(node: NodeRow) -> bool:
    """Whether it counts towards its domain's limit: silent or quarantined, and not taken out to be worked on."""
    if node.status is None or node.desired_state in (SERVICING, RETIRED):
        return False
    return node.agent != "Connected" or node.state == QUARANTINED
