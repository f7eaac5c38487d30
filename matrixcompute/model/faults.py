"""detect: the faults of one node, each with its level and the action taken. Pure.

MatrixResource judges what agents report; a lost agent reports nothing any more, which is a fault of its own. A node's
faults do not depend on whether it is allocated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from matrixcompute.recovery.ladder import REPLACE, recovery_rules
from matrixresource.contract.nodes import NodeView
from matrixresource.nodes.fault_levels import level_named

Action = Literal["None", "NoNewWork", "Repair", "Replace"]

NODE_LOST, NODE_LOST_LEVEL = "NodeLost", "Separate"
"""The fault of a node whose agent is lost, and its level: it is out of service like a node to be separated."""


@dataclass(frozen=True)
class Detected:
    """One fault on one component of a node. `since` is RFC 3339."""

    node: str
    component: str
    code: str
    level: str
    action: Action
    since: str
    message: str
    active: bool
    raised_by: str | None = None

    @property
    def name(self) -> str:
        """The name of the fault: node, component and code as the labels of a DNS name."""
        return ".".join(re.sub(r"[^a-z0-9]+", "-", part.lower()) for part in (self.node, self.component, self.code))


def may_have_faults(node: NodeView) -> bool:
    """Whether `detect` could find any; a cheap check that most nodes fail."""
    return bool(node.faults) or node.agent == "Lost"


def detect(node: NodeView, instance: bool) -> dict[str, Detected]:
    """The faults of a node, by name. `instance`: whether an instance holds the node, and so repairs or replaces it."""
    found = [
        Detected(
            node.name, each.component, each.code, each.level, _action(each.level, instance), each.since, each.message,
            each.active, each.raised_by,
        )
        for each in node.faults
    ]  # fmt: skip
    if node.agent == "Lost" and node.state != "Enrolled":
        action = _action(NODE_LOST_LEVEL, instance)
        text = "its agent has not reported within its lease"
        found.append(
            Detected(node.name, "node", NODE_LOST, NODE_LOST_LEVEL, action, node.updated_at, text, active=True)
        )
    return {each.name: each for each in found}


def _action(level: str, instance: bool) -> Action:
    fault_level = level_named(level)
    if fault_level.health == "Unhealthy" and instance:
        return "Replace" if recovery_rules().ladder(level)[:1] == (REPLACE,) else "Repair"
    return "None" if fault_level.schedulable else "NoNewWork"
