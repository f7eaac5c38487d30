"""Stuck nodes: those past the deadline of a passing state, with what to do next."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.resource_model import StuckView
from matrixresource.nodes.states import NODE_STATES
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

REMEDIES = {
    "Verifying": "check its agent; :quarantine takes it out of service, :retire does so for good",
    "Inspecting": "check its agent; :quarantine takes it out of service, :retire does so for good",
    "Deploying": "the instance replaces it once its agent gives up; :quarantine with force replaces it now",
    "Stopping": "check its agent; :quarantine with force replaces it now",
    "Cleaning": "check its agent; :service or :quarantine takes it out of service until :recover",
    "Draining": "see its holder's events for what delays it; :quarantine with force replaces it now, "
    ":recover cancels the drain",
}
"""What to do, by state."""


def stuck_nodes(store: ResourceStore, session: Session, now: float) -> list[StuckView]:
    """Sorted by name."""
    return [_stuck(node, now) for node in store.nodes(session) if node.is_overdue(now)]


def _stuck(node: NodeRow, now: float) -> StuckView:
    silent = f", its agent is {node.agent}" if node.agent != "Connected" else ""
    at = f" at {node.stage}" if node.stage else ""
    deadline_s = NODE_STATES.states[node.state].deadline_s
    return node.overdue_view(now, f"{node.state} for longer than {deadline_s:g} s{at}{silent}: {REMEDIES[node.state]}")
