"""Starts MatrixCompute: `python -m services.compute --help`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_key import key_of, resolve
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.access import ACCESS
from matrixcompute.api.instances import routes
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.clients.process_executor import ProcessExecutor
from matrixcompute.instances.disruption_budgets import DisruptionBudgets
from matrixcompute.instances.maintenances import Maintenances
from matrixcompute.instances.recovery_policies import RecoveryPolicies
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.instances.scenarios import ScenarioRuns, Scenarios
from matrixcompute.instances.service import InstanceService
from matrixcompute.operations.context import InstanceHost
from matrixcompute.reconcilers.autoscaling import AutoscalingReconciler
from matrixcompute.reconcilers.defragmentation_executor import DefragmentationExecutor
from matrixcompute.reconcilers.faults import FaultReconciler
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.reconcilers.maintenance import MaintenanceReconciler
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.reconcilers.scenario_runs import ScenarioRunReconciler
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.scenarios.world import World
from matrixcompute.store.store import Base, ComputeStore
from matrixcompute.workflows.definitions import WORKFLOWS
from matrixlink.client import LinkClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.http import InProcess, http_client
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic, compaction, follow, follow_replicas, history_s
from services.chassis.run import main_of
from services.chassis.settings import LedSettings
from services.chassis.version import version
from services.compute.metrics import InstanceMetrics

MIGRATIONS = Migrations("compute", Base.metadata)

RECONCILE_PERIOD_S = 10.0
ORPHAN_PERIOD_S = 60.0
MEMBER_MOVES_PERIOD_S = 30.0
AUTOSCALING_PERIOD_S = 15.0
"""As often as HPA looks."""
MAINTENANCE_PERIOD_S = 15.0
SCENARIO_PERIOD_S = 15.0
FAULTS_PERIOD_S = 600.0
"""How often all nodes are looked at; they are followed in between."""


class ComputeSettings(LedSettings):
    """MatrixCompute: the life of instances, and their recovery."""

    resource_url: str = Field("http://127.0.0.1:8401", description="where MatrixResource is")
    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    infer_url: str = Field(
        "http://127.0.0.1:8404",
        description="where CloudMatrix-Infer is: its load is looked at and its nodes are drained; empty: nowhere",
    )
    agents_url: str = Field(
        "http://127.0.0.1:8405", description="where the emulated hardware takes the faults of scenarios; empty: nowhere"
    )
    lost_per_cabinet: int = Field(
        4,
        ge=1,
        description="safety stop: how many nodes of a cabinet may be out while members there are replaced",
    )
    lost_per_supernode: int = Field(8, ge=1, description="safety stop: the same for a whole supernode")
    drain_seconds: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="how long a member that serves may drain (emulated) before it is moved or repaired; 0: not at all",
    )


def build(
    settings: ComputeSettings,
    clock: Clock,
    database: DatabaseEngine,
    neighbours: ControlPlane | None = None,
    inference: Inference | None = None,
    services: Mapping[str, httpx.AsyncClient] | None = None,
) -> FastAPI:
    """The application over a migrated database. `neighbours`, `inference` and `services` (those that scenarios ask, by
    name) stand for the other processes in tests."""
    if neighbours is None:
        if settings.infer_url:
            inference = Inference(http_client(settings.infer_url, settings.token))
        urls = {"resource": settings.resource_url, "link": settings.link_url, "agents": settings.agents_url}
        services = {name: http_client(url, settings.token) for name, url in urls.items() if url}
        neighbours = ControlPlane(services["resource"], LinkClient(services["link"]))
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    store = ComputeStore(records)
    policy = RecoveryPolicy(settings.lost_per_cabinet, settings.lost_per_supernode, settings.drain_seconds)
    host = InstanceHost(store, neighbours, clock, policy, inference)
    runner = WorkflowRunner(WORKFLOWS, host, clock)
    resumption = Periodic("workflow-resumption", runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
    instance_service = InstanceService(store, neighbours, runner, clock, resumption.nudge)
    tender = InstanceReconciler(store, neighbours, runner, clock, policy, resumption.nudge)
    reconciling = Periodic(
        "node-health",
        tender.reconcile,
        clock,
        period_s=RECONCILE_PERIOD_S,
        floor_wall_s=1.0,
        rest_s=0.1,  # nudges that come together are one run; a lost member does not wait for that
        rest_floor_wall_s=0.1,
    )
    moves = DefragmentationExecutor(store, neighbours, instance_service)
    moving = Periodic("member-moves", moves.reconcile, clock, period_s=MEMBER_MOVES_PERIOD_S, floor_wall_s=1.0)
    scaling_policies = ScalingPolicies(store, instance_service)
    autoscaler = AutoscalingReconciler(store, instance_service, inference, clock, resumption.nudge)
    scaling = Periodic(
        "autoscaling", autoscaler.reconcile, clock, period_s=AUTOSCALING_PERIOD_S, floor_wall_s=0.25, rest_s=1.0
    )
    scaling_policies.wake = partial(scaling.nudge, urgent=True)
    recovery_policies = RecoveryPolicies(store)
    maintenances = Maintenances(store, neighbours, clock)
    maintainer = MaintenanceReconciler(store, neighbours, clock)
    maintaining = Periodic(
        "maintenance", maintainer.reconcile, clock, period_s=MAINTENANCE_PERIOD_S, floor_wall_s=0.5, rest_s=3.0
    )
    maintenances.wake = maintainer.wake = maintaining.nudge
    asked_by_scenarios = dict(services or {})
    executor = ProcessExecutor(asked_by_scenarios["agents"]) if "agents" in asked_by_scenarios else None
    world = World(asked_by_scenarios, executor)
    scenarios, scenario_runs = Scenarios(store), ScenarioRuns(store, world, clock)
    player = ScenarioRunReconciler(store, world, clock, version())
    playing = Periodic("scenario-runs", player.reconcile, clock, period_s=SCENARIO_PERIOD_S, floor_wall_s=0.5)
    player.wake = playing.nudge

    def scenario_asked() -> None:
        player.look()
        playing.nudge()

    scenario_runs.wake = scenario_asked
    orphans = OrphanCollector(store, neighbours, clock, inference)
    faults = FaultReconciler(store, neighbours)
    judging = Periodic("faults", faults.reconcile, clock, period_s=FAULTS_PERIOD_S, floor_wall_s=10.0)

    judging_changed = Periodic(
        "changed-faults", faults.reconcile_changed, clock, period_s=FAULTS_PERIOD_S, rest_s=0.1, rest_floor_wall_s=0.1
    )

    async def node_changed(event: WatchEvent | None) -> None:
        if event is None:
            judging.nudge()
            maintaining.nudge()
        else:
            maintainer.node_changed()
            if faults.take(event):
                judging_changed.nudge()

    kept_s = history_s(clock)

    def forget_old() -> None:
        with store.transaction() as session:
            store.forget_before(session, clock.now() - kept_s)

    def following(
        collection: str,
        watcher: Periodic,
        instance_of: Callable[[dict[str, Any]], str] | None = None,
        urgent: Callable[[WatchEvent | None], bool] = lambda event: False,
    ) -> Callable[[], Awaitable[None]]:
        """Nudge a watcher, and the workflow of the instance that it is about, at every change a neighbour reports."""

        async def heard(event: WatchEvent | None) -> None:
            watcher.nudge(urgent(event))
            if event is None:
                runner.nudge()  # whatever has changed meanwhile
            elif instance_of is not None:
                runner.nudge(instance_of(event.view))

        return partial(follow, partial(neighbours.watch, collection), heard)

    policies = scaling_policies.generations()

    def take_up_verbs() -> None:
        """Another replica may have been asked for something."""
        nonlocal policies
        resumption.nudge()
        maintaining.nudge()
        scenario_asked()
        if (asked := scaling_policies.generations()) != policies:  # not at each write of its own decisions
            policies = asked
            scaling.nudge(urgent=True)

    leadership = Leadership(
        "compute", records, fences, clock, lease_wall_s=settings.leader_lease, announce=neighbours.announce
    )
    registry = CollectorRegistry()
    metrics = InstanceMetrics(registry, store, clock)

    api = routes(
        store,
        instance_service,
        scaling_policies,
        recovery_policies,
        maintenances,
        DisruptionBudgets(store),
        scenarios,
        scenario_runs,
        Operations(runner, host, clock, resumption.nudge),
        clock,
        reconciling.nudge,
    )
    app = create_app(
        "compute",
        "MatrixCompute",
        [api],
        ACCESS,
        fences=fences,
        leadership=leadership,
        tokens=Tokens(settings.tokens),
        led=[
            resumption,
            reconciling,
            moving,
            scaling,
            maintaining,
            playing,
            judging,
            judging_changed,
            Periodic("orphan-release", orphans.reconcile, clock, period_s=ORPHAN_PERIOD_S, floor_wall_s=5.0),
            compaction(records, clock, kept_s=kept_s, also=forget_old),
            Periodic("count", metrics.count, clock, period_s=30.0, floor_wall_s=5.0),
        ],
        led_tasks=[
            runner.run,
            partial(follow_replicas, records, take_up_verbs),
            following("allocations", reconciling, lambda view: key_of(view["project"], view["name"]), tender.hear),
            following("slices", reconciling, lambda view: resolve(view["instance"], view["project"])),
            following("defragmentations", moving),
            partial(follow, partial(neighbours.watch, "nodes"), node_changed),
        ],
        registry=registry,
        on_stop=database.close,
    )
    asked_by_scenarios["compute"] = http_client("http://compute", settings.token, transport=InProcess(app))
    return app


main = main_of(ComputeSettings, MIGRATIONS, build)
