"""What MatrixCompute tells Prometheus of its instances, besides how it serves requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from matrixcompute.instance_states import INSTANCE_STATES
from matrixcompute.store import ComputeStore, InstanceRow
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.quantities import from_timestamp


class InstanceMetrics:
    """Gauges that `count` brings up to date."""

    def __init__(self, registry: CollectorRegistry, store: ComputeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._states = Gauge("instances", "Instances by state.", ["state"], registry=registry)
        self._degraded = Gauge("instances_degraded", "Instances that lack what was promised.", registry=registry)
        self._stuck = Gauge("instances_stuck", "Instances past the deadline of a passing state.", registry=registry)
        self._open = Gauge("operations_open", "Operations under way.", registry=registry)

    async def count(self) -> str:
        with self._store.reading() as session:
            held = self._store.instances(session)
            states = [row.state for row in held]
            degraded = sum((_condition(row, "Degraded") or {}).get("status") == "True" for row in held)
            stuck = sum(self._is_stuck(row) for row in held)
            open_sagas = len(self._store.open_sagas(session))
        self._states.clear()
        for state in states:
            self._states.labels(state).inc()
        self._degraded.set(degraded)
        self._stuck.set(stuck)
        self._open.set(open_sagas)
        return f"{len(states)} instances"

    def _is_stuck(self, row: InstanceRow) -> bool:
        progressing = _condition(row, "Progressing")
        now = self._clock.now()
        since = now if progressing is None else from_timestamp(progressing["lastTransitionTime"])
        return INSTANCE_STATES.stuck(row.state, since, now)


def _condition(row: InstanceRow, type: str) -> dict[str, str] | None:
    return next((held for held in row.conditions or [] if held["type"] == type), None)
