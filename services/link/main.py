"""Starts MatrixLink: `python -m services.link --help`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field, model_validator

from matrixcommon.model.clock import Clock
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.rows import forget_workflows
from matrixcommon.workflows.runner import WorkflowRunner
from matrixlink.api.access import ACCESS
from matrixlink.api.communicators import communicator_routes
from matrixlink.api.drains import drain_routes
from matrixlink.api.link_health import care_routes
from matrixlink.api.peerings import peering_routes
from matrixlink.api.slices import routes
from matrixlink.api.telemetry import telemetry_routes
from matrixlink.communicators.service import Communicators
from matrixlink.controllers.agent_leases import Leases
from matrixlink.controllers.link_health import LinkHealth
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.controllers.orphaned_slices import OrphanedSlices
from matrixlink.controllers.supernode_expiry import DepartedSupernodes
from matrixlink.controllers.topology_follower import TopologyFollower, supernode_of
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.sharing.native_kernel import kernel
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.flap_damping import Damping
from matrixlink.link_health.link_events import LinkEvents
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.maintenance.drain_workflow import WORKFLOWS, DrainHost
from matrixlink.maintenance.drained_elements import DrainedElements
from matrixlink.maintenance.drains import Drains
from matrixlink.peering.peerings import Peerings
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import Base, OperationRow
from matrixlink.telemetry.metrics import LinkMetrics
from matrixlink.telemetry.rates import PortRates
from matrixlink.telemetry.views import Telemetry
from matrixresource.client import ResourceClient
from matrixresource.topology import Supernode
from matrixresource.topology.loading import load_spec
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.http import http_client
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic, compaction, follow, follow_replicas, history_s
from services.chassis.run import main_of
from services.chassis.settings import LedSettings
from services.link.allocations import ReservedNodes

MIGRATIONS = Migrations("link", Base.metadata)

HEALTH_PERIOD_S, HEALTH_FLOOR_WALL_S = 5.0, 0.5
DEPARTED_PERIOD_S = 60.0
TOPOLOGY_PERIOD_S = 5.0
ORPHANS_PERIOD_S = 60.0


class LinkSettings(LedSettings):
    """MatrixLink: the three planes, slices and their bandwidth, routes, link health."""

    supernodes: int = Field(1, ge=1, le=8, description="supernodes known from the start; others by their agents")
    spec: Path | None = Field(
        None, description="YAML file with the numbers of a supernode, or a built-in machine by name; CloudMatrix384"
    )
    resource_url: str = Field(
        "", description="where MatrixResource is; without it nobody is asked whose nodes a slice's members are"
    )
    lease_grace: float = Field(
        60.0, gt=0, description="emulated seconds after start in which silent agents are forgiven"
    )
    damping_half_life: float = Field(
        120.0, gt=0, description="emulated seconds in which the penalty of a port that went down halves"
    )
    damping_suppress: float = Field(
        2500.0, gt=0, description="penalty from which on a port is held down; each time it goes down counts 1000"
    )
    damping_reuse: float = Field(750.0, gt=0, description="penalty below which a damped port is believed again")
    damping_hold_max: float = Field(900.0, gt=0, description="the longest that a port is held down, emulated seconds")

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> LinkSettings:
        if self.damping_reuse >= self.damping_suppress:
            raise ValueError("damping_reuse is below damping_suppress")
        return self

    def damping(self) -> Damping:
        return Damping(self.damping_half_life, self.damping_suppress, self.damping_reuse, self.damping_hold_max)


def build(
    settings: LinkSettings, clock: Clock, database: DatabaseEngine, resource: ResourceClient | None = None
) -> FastAPI:
    """The application over a migrated database. `resource`: who is asked whose nodes a slice's members are."""
    if resource is None and settings.resource_url:
        resource = ResourceClient(http_client(settings.resource_url, settings.token))
    spec = load_spec(settings.spec)
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    kept = [f"sn{index}" for index in range(settings.supernodes)]
    fabric = Fabric(Supernode(name, spec) for name in kept)
    store = LinkStore(records)
    with store.reading() as session:
        for name, document in store.wirings(session).items():
            learnt = supernode_of(name, document)
            if learnt.spec.fingerprint == spec.fingerprint:
                fabric.set_topology(learnt)
    pauses = ProcessPauses(clock, lambda: clock.at_least_wall(HEALTH_PERIOD_S, HEALTH_FLOOR_WALL_S))
    leases = Leases(clock, lambda: clock.at_least_wall(settings.lease_grace, 6.0), pauses)
    slice_controller = SliceController(store, fabric, clock, leases)
    conditions = LinkStateTracker(slice_controller.store, slice_controller.promises, clock, settings.damping())
    diagnosis = FaultLocaliser(fabric, slice_controller.promises, conditions, clock)
    events = LinkEvents(store, fabric, leases.reachable, clock)
    watcher = LinkHealth(slice_controller, conditions, diagnosis, events, pauses)
    health = Periodic("link-health", watcher.watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=HEALTH_FLOOR_WALL_S)
    communicators = Communicators(slice_controller.store, fabric, clock)
    following = Periodic("communicators", communicators.watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=0.5)

    def ports_changed() -> None:
        communicators.synchronise()
        following.nudge()
        health.nudge()

    rates = PortRates(fabric, clock)
    telemetry = Telemetry(slice_controller, rates, diagnosis)
    reports = LinkReportProcessor(slice_controller, leases, conditions, diagnosis, rates, clock, ports_changed)
    departed = DepartedSupernodes(slice_controller, leases, kept, reports, rates, diagnosis)
    registry = CollectorRegistry()
    registry.register(LinkMetrics(slice_controller, telemetry, conditions, diagnosis, reports.counters))

    watchers: list[Periodic] = []
    tasks: list[Callable[[], Awaitable[Any]]] = [
        lambda: asyncio.to_thread(kernel)  # compiled once per machine, before the first flows need it
    ]
    if resource is not None:
        follower = TopologyFollower(slice_controller, resource)

        async def follow_topology() -> str:
            found = await follower.watch()
            communicators.synchronise()
            return found

        topology = Periodic("topology", follow_topology, clock, period_s=TOPOLOGY_PERIOD_S, floor_wall_s=0.5)
        follower.newest.changed = topology.nudge
        watchers.append(topology)
        tasks.append(partial(follow, partial(resource.watch, "topology-versions"), follower.newest.hear))

    def forget_events() -> None:
        with records.transaction() as session:
            slice_controller.store.forget_events(session)
            slice_controller.store.forget_generations(session)
            forget_workflows(session, OperationRow, before=clock.now() - history_s(clock))

    allocations = ReservedNodes(resource, clock) if resource is not None else None
    if allocations is not None:
        orphans = OrphanedSlices(slice_controller, allocations, clock)
        watchers.append(Periodic("orphans", orphans.reconcile, clock, period_s=ORPHANS_PERIOD_S, floor_wall_s=5.0))
    elements = DrainedElements(slice_controller)
    host = DrainHost(elements)
    runner = WorkflowRunner(WORKFLOWS, host, clock)
    resumption = Periodic("workflow-resumption", runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
    operations = Operations(runner, host, clock, resumption.nudge)
    return create_app(
        "link",
        "MatrixLink",
        [
            routes(slice_controller, reports, allocations),
            care_routes(slice_controller, conditions, diagnosis, health.nudge),
            drain_routes(slice_controller, Drains(elements, runner), operations),
            peering_routes(slice_controller, Peerings(slice_controller)),
            communicator_routes(communicators),
            telemetry_routes(telemetry),
        ],
        ACCESS,
        fences=fences,
        tokens=Tokens(settings.tokens),
        watchers=[
            *watchers,
            health,
            following,
            Periodic("departed", departed.watch, clock, period_s=DEPARTED_PERIOD_S, floor_wall_s=1.0),
            compaction(records, clock, also=forget_events),
        ],
        registry=registry,
        tasks=tasks,
        leadership=Leadership("link", records, fences, clock, lease_wall_s=settings.leader_lease),
        led=[resumption],
        led_tasks=[runner.run, partial(follow_replicas, records, resumption.nudge)],
        on_stop=database.close,
    )


main = main_of(LinkSettings, MIGRATIONS, build)
