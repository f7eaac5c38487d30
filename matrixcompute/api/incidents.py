"""What happened, over HTTP: events, faults that were found, what does not get on, and what failures have cost."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_model import StuckView
from matrixcompute import access
from matrixcompute.contract import Reliability
from matrixcompute.instances.stuck import stuck_instances, stuck_maintenances, stuck_scenario_runs
from matrixcompute.store.store import ComputeStore


def incident_routes(store: ComputeStore, clock: Clock) -> APIRouter:
    """The routes over one store's history."""
    api = ResourceRoutes(store.records)
    api.of(access.EVENTS).list(order_by="at")

    faults = api.of(access.FAULTS)
    faults.list()
    faults.get()

    def stuck() -> list[StuckView]:
        with store.reading() as session:
            now = clock.now()
            late = [*stuck_maintenances(session, now), *stuck_scenario_runs(session, now)]
            return [*stuck_instances(store, session, now), *late]

    api.of(access.STUCK).list(
        stuck,
        description="Instances whose operation cannot be resumed; what is in a passing state for too long.",
    )

    def reliability() -> list[Reliability]:
        with store.reading() as session:
            return [row.reliability(clock.now()) for row in store.instances(session)]

    api.of(access.RELIABILITY).list(
        reliability,
        description="What failures have cost each instance: mean time to recovery in its parts, and effective training "
        "time ratio.",
    )
    return api.router
