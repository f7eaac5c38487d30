"""Metrics of MatrixCompute's instances, in addition to those of its requests."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.telemetry.metric import Label, Metric
from matrixcompute.instances.stuck import stuck_instances
from matrixcompute.model.states import INSTANCE_STATES
from matrixcompute.recovery.times import PARTS
from matrixcompute.store.store import ComputeStore, EventRow, InstanceRow, OperationRow

RECOVERY_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 90, 120, 300, 600, 1800, 7200)
QUEUE_SECONDS = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)

STATES = Metric(
    "matrixcompute_instances",
    "gauge",
    "instances",
    "Instances by state.",
    (Label("state", "state of the instance", tuple(INSTANCE_STATES.states)),),
    stability="stable",
)
DEGRADED = Metric(
    "matrixcompute_instances_degraded",
    "gauge",
    "instances",
    "Instances that lack nodes, links or bandwidth that they were promised.",
    stability="stable",
)
STUCK = Metric(
    "matrixcompute_instances_stuck",
    "gauge",
    "instances",
    "Instances past the deadline of their state.",
    stability="stable",
)
OPEN = Metric("matrixcompute_operations_open", "gauge", "operations", "Operations in progress.", stability="stable")
QUEUE = Metric(
    "matrixcompute_instance_queue_seconds",
    "histogram",
    "seconds (emulated)",
    "Time from the request of an instance until its nodes are committed.",
    buckets=QUEUE_SECONDS,
    stability="stable",
)
RECOVERY = Metric(
    "matrixcompute_instance_recovery_seconds",
    "histogram",
    "seconds (emulated)",
    "Duration of recoveries by part and in total.",
    (Label("part", "part of the recovery", (*PARTS, "total")),),
    buckets=RECOVERY_SECONDS,
    stability="stable",
)
METRICS = (STATES, DEGRADED, STUCK, OPEN, QUEUE, RECOVERY)


class InstanceMetrics:
    """Metrics updated by `count`. Gauges are set by every replica, as a former leader would otherwise show stale values
    forever. Events are observed only by the replica that `leads`, or each would count several times."""

    def __init__(
        self, registry: CollectorRegistry, store: ComputeStore, clock: Clock, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self._store = store
        self._clock = clock
        self._leads = leads
        self._states, self._degraded = STATES.gauge(registry), DEGRADED.gauge(registry)
        self._stuck, self._open = STUCK.gauge(registry), OPEN.gauge(registry)
        self._queue, self._recovery = QUEUE.histogram(registry), RECOVERY.histogram(registry)
        self._placed_until = self._recovered_until = clock.now()

    async def count(self) -> str:
        with self._store.reading() as session:
            current = self._store.instances(session)
            states = [row.state for row in current]
            degraded = sum((_condition(row, "Degraded") or {}).get("status") == "True" for row in current)
            stuck = len(stuck_instances(self._store, session, self._clock.now()))
            open_operations = len(self._store.open_operations(session))
            queue_times = self._queue_times(session)
            recovered = self._new_recoveries(session)
        for state in INSTANCE_STATES.states:
            self._states.labels(state).set(states.count(state))
        self._degraded.set(degraded)
        self._stuck.set(stuck)
        self._open.set(open_operations)
        if not self._leads():
            return f"{len(states)} instances"
        for seconds in queue_times:
            self._queue.observe(seconds)
        for parts in recovered:
            for part, seconds in {**parts, "total": sum(parts.values())}.items():
                self._recovery.labels(part).observe(seconds)
        return f"{len(states)} instances"

    def _new_recoveries(self, session: Session) -> list[dict[str, float]]:
        """The parts of each recovery that ended since the last call."""
        rows = list(session.scalars(select(OperationRow).where(OperationRow.finished_at > self._recovered_until)))
        self._recovered_until = max([row.finished_at or 0.0 for row in rows], default=self._recovered_until)
        return [dict(row.recovery) for row in rows if row.recovery is not None]

    def _queue_times(self, session: Session) -> list[float]:
        """The waiting time of each instance whose nodes were first committed since the last call."""
        query = select(EventRow).where(EventRow.reason == "Scheduled", EventRow.at > self._placed_until)
        rows = list(session.scalars(query.order_by(EventRow.at)))
        reported = select(EventRow).where(
            EventRow.about.in_({event.about for event in rows}), EventRow.reason.in_(("Requested", "Scheduled"))
        )
        requested_at: dict[str, float] = {}
        found = []
        for event in session.scalars(reported.order_by(EventRow.at, EventRow.name)) if rows else ():
            if event.reason == "Requested":
                requested_at[event.about] = event.at
            elif event.about in requested_at:
                waited = event.at - requested_at.pop(event.about)
                if event.at > self._placed_until:
                    found.append(waited)
        self._placed_until = max([event.at for event in rows], default=self._placed_until)
        return found


def _condition(row: InstanceRow, type: str) -> dict[str, str] | None:
    return next((current for current in row.conditions or [] if current["type"] == type), None)
