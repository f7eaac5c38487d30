"""Which nodes do not get on: a passing state has outlived its deadline. With what to do next."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.resource_model import StuckView
from matrixresource.nodes.states import NODE_STATES
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

NEXT = {
    "Verifying": "look at its agent; :quarantine keeps it out, :retire takes it out for good",
    "Inspecting": "look at its agent; :quarantine keeps it out, :retire takes it out for good",
    "Deploying": "the instance replaces it when its agent gives up; :quarantine with force has it replaced now",
    "Stopping": "look at its agent; :quarantine with force has it replaced now",
    "Cleaning": "look at its agent; :service or :quarantine keeps it out until :recover",
    "Draining": "see the events of who has it for what keeps it there; :quarantine with force has it replaced now, "
    ":recover leaves it where it is",
}
"""By state, what helps."""


def stuck_nodes(store: ResourceStore, session: Session, now: float) -> list[StuckView]:
    """By name."""
    return [_stuck(node, now) for node in store.nodes(session) if node.overdue(now)]


def _stuck(node: NodeRow, now: float) -> StuckView:
    silent = f", its agent is {node.agent}" if node.agent != "Connected" else ""
    at = f" at {node.stage}" if node.stage else ""
    deadline_s = NODE_STATES.states[node.state].deadline_s
    return node.overdue_view(now, f"{node.state} for longer than {deadline_s:g} s{at}{silent}: {NEXT[node.state]}")
