"""detect: the faults of one node, each with its level and what is done about it. Pure.

MatrixResource judges what agents report; of a node whose agent is lost nobody reports any more, and that is a fault of
its own. A node has its faults whoever holds it, and while nobody does.
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
"""A node that nobody hears of is out as one that is to be separated."""


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
        """From what it is, as a DNS name of labels."""
        return ".".join(re.sub(r"[^a-z0-9]+", "-", part.lower()) for part in (self.node, self.component, self.code))


def may_have_faults(node: NodeView) -> bool:
    """Whether `detect` could find any: of most nodes it need not be asked."""
    return bool(node.faults) or node.agent == "Lost"


def detect(node: NodeView, instance: bool) -> dict[str, Detected]:
    """By name; `instance` says whether an instance holds the node, which then gives its place up where need be."""
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
    judged = level_named(level)
    if judged.health == "Unhealthy" and instance:
        return "Replace" if recovery_rules().ladder(level)[:1] == (REPLACE,) else "Repair"
    return "None" if judged.schedulable else "NoNewWork"
