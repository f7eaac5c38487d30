"""Quarantines nodes that flap, returns them when they have been stable for long enough, and retries nodes whose failed
stage did not lead to quarantine.

Only free nodes are quarantined: a node that is lost while it is held is replaced first, and is free after that. The
number of nodes in quarantine is limited per cabinet and supernode; the limit never keeps a node from returning.
"""

from __future__ import annotations

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixresource.allocations.node_lifecycle import FLAPPING, NodeLifecycle
from matrixresource.nodes.flap_rules import flap_rules
from matrixresource.nodes.states import AVAILABLE, QUARANTINED, STAGE_TOLERATED
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow

TOLERATED = "FlappingTolerated"
"""Why a flapping node is not quarantined."""


class FlappingNodes:
    """`reconcile` runs periodically."""

    def __init__(self, store: ResourceStore, lifecycle: NodeLifecycle, clock: Clock) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._clock = clock

    async def reconcile(self) -> str:
        """Check every node with a significant score."""
        now, rules = self._clock.now(), flap_rules()
        names = self._store.records.query_unless_known_empty(NodeRow, _scored)
        if not names:
            return "no node is flapping"
        with self._store.transaction() as session:
            for node in self._store.nodes(session, names):
                self._reconcile_node(session, node, rules.decayed_score(node.flap_score or 0.0, node.flapped_at, now))
        return f"{len(names)} nodes are flapping or have flapped"

    def _reconcile_node(self, session: Session, node: NodeRow, score: float) -> None:
        rules = flap_rules()
        if node.state_reason == STAGE_TOLERATED:
            retry_due = self._clock.now() - node.updated_at >= rules.retry_s
            if node.status == "Failed" and node.in_sync and node.agent == "Connected" and retry_due:
                self._lifecycle.retry_stage(session, node)
        elif node.desired_state == QUARANTINED:
            if node.state_reason == FLAPPING and node.agent == "Connected" and score < rules.return_below:
                self._lifecycle.verify(session, node, "it has stopped flapping")
        elif node.desired_state == AVAILABLE and not node.allocated and score >= rules.quarantine_at:
            message = f"flapping: score {score:.1f}, quarantined at {rules.quarantine_at:g}"
            others = [each.node_name for each in self._store.nodes(session) if each.desired_state == QUARANTINED]
            full = rules.full_domain(FLAPPING, node.node_name, others)
            if full is None:
                self._lifecycle.quarantine(session, node, FLAPPING, message)
            elif node.state_reason != TOLERATED:
                node.state_reason = TOLERATED
                node.state_message = f"{message}; {full} has reached its limit of quarantined nodes"
        elif node.state_reason == TOLERATED and score < rules.quarantine_at:
            node.state_reason, node.state_message = None, ""


def _scored(session: Session) -> list[str]:
    """Names of nodes with a significant score, or that were marked as flapping or as retrying a stage."""
    reasons = (FLAPPING, TOLERATED, STAGE_TOLERATED)
    scored = or_(NodeRow.flap_score >= flap_rules().quarantine_at, NodeRow.state_reason.in_(reasons))
    return [*session.scalars(select(NodeRow.name).where(scored).order_by(NodeRow.name))]
