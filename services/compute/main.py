"""Starts MatrixCompute: `python -m services.compute --help`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcompute.access import ACCESS
from matrixcompute.api.incidents import incident_routes
from matrixcompute.api.instances import instance_routes
from matrixcompute.api.maintenances import maintenance_routes
from matrixcompute.api.policies import policy_routes
from matrixcompute.api.scenarios import scenario_routes
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.instances.disruption_budgets import DisruptionBudgets
from matrixcompute.instances.recovery_policies import RecoveryPolicies
from matrixcompute.instances.scenarios import Scenarios
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import Base, ComputeStore
from matrixlink.client import LinkClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.http import InProcessTransport, http_client
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic, compaction, follow, follow_replicas, history_s
from services.chassis.run import service_main
from services.compute.controllers import (
    AutoscalingControllers,
    FaultControllers,
    InstanceControllers,
    MaintenanceControllers,
    ScenarioControllers,
)
from services.compute.metrics import InstanceMetrics
from services.compute.settings import ComputeSettings

MIGRATIONS = Migrations("compute", Base.metadata)


def build(
    settings: ComputeSettings,
    clock: Clock,
    database: DatabaseEngine,
    control_plane: ControlPlane | None = None,
    inference: Inference | None = None,
    services: Mapping[str, httpx.AsyncClient] | None = None,
) -> FastAPI:
    """The application over a migrated database. `control_plane`, `inference` and `services` (those used by scenarios,
    by name) replace the other processes in tests."""
    if control_plane is None:
        control_plane, inference, services = _http_clients(settings)
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    store = ComputeStore(records)
    policy = RecoveryPolicy(settings.lost_per_cabinet, settings.lost_per_supernode, settings.drain_seconds)
    scenario_clients = dict(services or {})
    instances = InstanceControllers(store, control_plane, inference, policy, clock)
    autoscaling = AutoscalingControllers(store, instances, inference, clock)
    maintenance = MaintenanceControllers(store, control_plane, clock)
    scenarios = ScenarioControllers(store, scenario_clients, clock)
    faults = FaultControllers(store, control_plane, clock)

    async def node_changed(event: WatchEvent | None) -> None:
        maintenance.node_changed(event)
        faults.node_changed(event)

    def on_replica_write() -> None:
        """Nudge everything that a request to another replica may concern."""
        instances.resumption.nudge()
        maintenance.nudge()
        scenarios.wake_for_requests()
        autoscaling.on_replica_write()

    kept_s = history_s(clock)

    def delete_expired() -> None:
        with store.transaction() as session:
            store.delete_before(session, clock.now() - kept_s)

    registry = CollectorRegistry()
    leadership = Leadership(
        "compute", records, fences, clock, lease_wall_s=settings.leader_lease, announce=control_plane.announce
    )
    metrics = InstanceMetrics(registry, store, clock, lambda: leadership.generation is not None)
    app = create_app(
        "compute",
        "MatrixCompute",
        [
            instance_routes(store, instances.service, instances.operations),
            incident_routes(store, clock),
            policy_routes(store, autoscaling.policies, RecoveryPolicies(store), instances.node_health.nudge),
            maintenance_routes(store, maintenance.maintenances, DisruptionBudgets(store, control_plane, clock)),
            scenario_routes(store, Scenarios(store), scenarios.runs),
        ],
        ACCESS,
        fences=fences,
        leadership=leadership,
        tokens=Tokens(settings.tokens),
        watchers=[Periodic("count", metrics.count, clock, period_s=30.0, floor_wall_s=5.0)],
        leader_watchers=[
            *instances.periodics,
            *autoscaling.periodics,
            *maintenance.periodics,
            *scenarios.periodics,
            *faults.periodics,
            compaction(records, clock, retention_s=kept_s, before_compaction=delete_expired),
        ],
        leader_tasks=[
            *instances.tasks,
            partial(follow_replicas, records, on_replica_write),
            partial(follow, partial(control_plane.watch, "nodes"), node_changed),
        ],
        registry=registry,
        records=records,
        on_stop=database.close,
    )
    scenario_clients["compute"] = http_client("http://compute", settings.token, transport=InProcessTransport(app))
    return app


def _http_clients(
    settings: ComputeSettings,
) -> tuple[ControlPlane, Inference | None, Mapping[str, httpx.AsyncClient]]:
    """Clients of the other processes, at the URLs of the settings."""
    urls = {"resource": settings.resource_url, "link": settings.link_url}
    urls |= {"agents": settings.agents_url} if settings.agents_url else {}
    services = {name: http_client(url, settings.token) for name, url in urls.items()}
    inference = Inference(http_client(settings.infer_url, settings.token)) if settings.infer_url else None
    return ControlPlane(services["resource"], LinkClient(services["link"])), inference, services


main = service_main(ComputeSettings, MIGRATIONS, build)
