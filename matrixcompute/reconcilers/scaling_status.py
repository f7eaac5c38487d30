"""The status of scaling policies: decisions, conditions, and an event for each change."""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.decision import Recommendation
from matrixcompute.autoscaling.policy import Reason, ScalingState
from matrixcompute.autoscaling.policy_view import ScalingDecision
from matrixcompute.reconcilers.scaling_targets import refusal
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingPolicyRow

DECISIONS_KEPT = 10
WAITING_REASONS = (Reason.DRAINING, Reason.CHANGE_UNDER_WAY)
"""Reasons for which a decision is not carried out yet."""
LIMITS = (Reason.TOO_MANY_REPLICAS, Reason.TOO_FEW_REPLICAS, Reason.SCALE_UP_LIMIT, Reason.SCALE_DOWN_LIMIT)
MISSING_METRICS = (Reason.METRIC_UNAVAILABLE, Reason.SERVICE_UNAVAILABLE)
NOT_SCALABLE = (Reason.TARGET_NOT_FOUND, Reason.TARGET_NOT_READY, Reason.REFUSED)
SCALABLE_STATUS = ("ReadyForNewScale", "the target has the last decided size, or is changing to it")


class ScalingStatus:
    """Writes the status of the policies in a store."""

    def __init__(self, store: ComputeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def write(self, session: Session, row: ScalingPolicyRow, current: int, found: Recommendation) -> None:
        """Record a decision, if it is new, in the status and conditions, and a change of size as an event too."""
        now, desired, reason, message = self._clock.now(), found.replicas, found.reason, found.message
        why = (str(reason), message) if reason in NOT_SCALABLE else refusal(session.get(InstanceRow, row.target))
        row.set_condition("AbleToScale", why is None, *(why or SCALABLE_STATUS), now)
        last = ScalingDecision.from_stored(row.decisions[-1]) if row.decisions else None
        pools = found.pools.wire() if found.pools is not None else None
        before = None if last is None or last.desired_pools is None else last.desired_pools.wire()
        if (row.current_replicas, row.desired_replicas, row.reason) == (current, desired, reason) and before == pools:
            return
        pools_changed = pools is not None and before is not None and pools != before and desired == current
        size_changed = (desired != row.desired_replicas and desired != current) or pools_changed
        row.current_replicas, row.desired_replicas, row.reason, row.message = current, desired, reason, message
        decision = ScalingDecision(
            at=timestamp(now),
            current_replicas=current,
            desired_replicas=desired,
            desired_pools=found.pools,
            reason=reason,
            message=message,
        )
        row.decisions = [*(row.decisions or []), decision.wire()][-DECISIONS_KEPT:]
        active, limited = reason not in (*MISSING_METRICS, *NOT_SCALABLE), reason in LIMITS
        row.set_condition("ScalingActive", active, "ValidMetricFound" if active else reason, message, now)
        row.set_condition("ScalingLimited", limited, reason if limited else "DesiredWithinRange", message, now)
        if size_changed:
            text = f"scaling policy {name_of(row.name)}: {message}"
            self._store.record_event(session, row.target, reason, text, now)

    def is_repeated(self, row: ScalingPolicyRow, current: int, found: Recommendation) -> bool:
        """Whether the same was decided before and the status shows what it waits for, so that it is not news."""
        if row.reason not in WAITING_REASONS:
            return False
        decided = next((each for each in reversed(row.decisions or []) if each["reason"] not in WAITING_REASONS), None)
        if decided is None:
            return False
        last = ScalingDecision.from_stored(decided)
        now = (current, found.replicas, found.reason, found.pools)
        return (last.current_replicas, last.desired_replicas, last.reason, last.desired_pools) == now

    def record_unchanged(self, name: str, reason: Reason, message: str) -> None:
        """Record that nothing is changed, and why."""
        with self._store.transaction() as session:
            if (row := session.get(ScalingPolicyRow, name)) is not None:
                instance = session.get(InstanceRow, row.target)
                nodes = 0 if instance is None or row.scaled_to_zero else instance.shape.nodes
                desired = row.desired_replicas if reason == Reason.DRAINING else nodes
                last = ScalingDecision.from_stored(row.decisions[-1]) if row.decisions else None
                pools = None if last is None else last.desired_pools
                self.write(session, row, nodes, Recommendation(desired, ScalingState(), reason, message, pools=pools))
                if reason == Reason.DRAINING and row.message != message:
                    row.message = message  # the number of requests there has changed
