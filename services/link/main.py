"""Starts MatrixLink: `python -m services.link --help`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field, model_validator

from matrixcommon.model.clock import Clock
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcommon.workflows.rows import delete_ended_workflows
from matrixlink.api.access import ACCESS
from matrixlink.api.agents import agent_routes
from matrixlink.api.communicators import communicator_routes
from matrixlink.api.drains import drain_routes
from matrixlink.api.fabric import fabric_routes
from matrixlink.api.link_health import link_health_routes
from matrixlink.api.peerings import peering_routes
from matrixlink.api.slices import slice_routes
from matrixlink.api.telemetry import telemetry_routes
from matrixlink.controllers.agent_leases import Leases
from matrixlink.controllers.topology_follower import supernode_from_document
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.link_health.flap_damping import Damping
from matrixlink.peering.peerings import Peerings
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import Base, OperationRow
from matrixlink.telemetry.metrics import LinkMetrics
from matrixlink.telemetry.views import Telemetry
from matrixresource.client import ResourceClient
from matrixresource.topology import Supernode
from matrixresource.topology.loading import load_spec
from matrixresource.topology.spec import SupernodeSpec
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.http import http_client
from services.chassis.leadership import Leadership
from services.chassis.periodic import compaction, follow_replicas, history_s
from services.chassis.run import service_main
from services.chassis.settings import LeaderSettings
from services.link.controllers import (
    HEALTH_FLOOR_WALL_S,
    HEALTH_PERIOD_S,
    CommunicatorControllers,
    DrainControllers,
    HealthControllers,
    ReportControllers,
    ResourceFollowers,
)

MIGRATIONS = Migrations("link", Base.metadata)


class LinkSettings(LeaderSettings):
    """MatrixLink: the three planes, slices and their bandwidth, routes, link health."""

    supernodes: int = Field(1, ge=1, le=8, description="supernodes known at start; others become known by their agents")
    spec: Path | None = Field(
        None,
        description="YAML file with the numbers of a supernode, or the name of a built-in machine; by default "
        "CloudMatrix384",
    )
    resource_url: str = Field(
        "", description="URL of MatrixResource; empty: slices are not checked against allocations"
    )
    lease_grace: float = Field(
        60.0, gt=0, description="emulated seconds after the start in which silent agents are not counted as lost"
    )
    damping_half_life: float = Field(
        120.0, gt=0, description="half-life of the flap penalty of a port, emulated seconds"
    )
    damping_suppress: float = Field(
        2500.0, gt=0, description="flap penalty from which a port is held down; going down once adds 1000"
    )
    damping_reuse: float = Field(750.0, gt=0, description="flap penalty below which a damped port is used again")
    damping_hold_max: float = Field(900.0, gt=0, description="longest time that a port is held down, emulated seconds")

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> LinkSettings:
        if self.damping_reuse >= self.damping_suppress:
            raise ValueError("damping_reuse must be below damping_suppress")
        return self

    def damping(self) -> Damping:
        return Damping(self.damping_half_life, self.damping_suppress, self.damping_reuse, self.damping_hold_max)


def build(
    settings: LinkSettings, clock: Clock, database: DatabaseEngine, resource: ResourceClient | None = None
) -> FastAPI:
    """The application over a migrated database. `resource`: the client for checking slices against allocations."""
    if resource is None and settings.resource_url:
        resource = ResourceClient(http_client(settings.resource_url, settings.token))
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    store = LinkStore(records)
    kept = [f"sn{index}" for index in range(settings.supernodes)]
    fabric = _fabric(kept, load_spec(settings.spec), store)
    pauses = ProcessPauses(clock, lambda: clock.at_least_wall(HEALTH_PERIOD_S, HEALTH_FLOOR_WALL_S))
    leases = Leases(clock, lambda: clock.at_least_wall(settings.lease_grace, 6.0), pauses)
    slice_controller = SliceController(store, fabric, clock, leases)
    health = HealthControllers(slice_controller, fabric, leases, pauses, settings.damping(), clock)
    communicators = CommunicatorControllers(slice_controller, fabric, clock)
    reporting = ReportControllers(slice_controller, fabric, leases, health, communicators, kept, clock)
    followers = None if resource is None else ResourceFollowers(slice_controller, communicators, resource, clock)
    drains = DrainControllers(slice_controller, clock)
    telemetry = Telemetry(slice_controller, reporting.rates, health.diagnosis)
    registry = CollectorRegistry()
    registry.register(
        LinkMetrics(slice_controller, telemetry, health.conditions, health.diagnosis, reporting.reports.counters)
    )

    def forget_old() -> None:
        with records.transaction() as session:
            store.forget_events(session)
            store.forget_generations(session)
            delete_ended_workflows(session, OperationRow, before=clock.now() - history_s(clock))

    return create_app(
        "link",
        "MatrixLink",
        [
            fabric_routes(slice_controller),
            slice_routes(slice_controller, followers.allocations if followers else None),
            agent_routes(store, reporting.reports),
            link_health_routes(slice_controller, health.conditions, health.diagnosis, health.nudge),
            drain_routes(slice_controller, drains.drains, drains.operations),
            peering_routes(slice_controller, Peerings(slice_controller)),
            communicator_routes(communicators.service),
            telemetry_routes(telemetry),
        ],
        ACCESS,
        fences=fences,
        tokens=Tokens(settings.tokens),
        watchers=[
            *(followers.periodics if followers else ()),
            *health.periodics,
            *communicators.periodics,
            *reporting.periodics,
            compaction(records, clock, before_compaction=forget_old),
        ],
        registry=registry,
        tasks=[
            partial(asyncio.to_thread, load_kernel),  # compiled once per host, before the first flows need it
            *(followers.tasks if followers else ()),
        ],
        leadership=Leadership("link", records, fences, clock, lease_wall_s=settings.leader_lease),
        leader_watchers=drains.leader_watchers,
        leader_tasks=[drains.runner.run, partial(follow_replicas, records, drains.resumption.nudge)],
        records=records,
        on_stop=database.close,
    )


def _fabric(names: Sequence[str], spec: SupernodeSpec, store: LinkStore) -> Fabric:
    """The supernodes, wired as their numbers say, or as stored if they were found to be wired otherwise."""
    fabric = Fabric(Supernode(name, spec) for name in names)
    with store.reading() as session:
        for name, document in store.wirings(session).items():
            stored = supernode_from_document(name, document)
            if stored.spec.fingerprint == spec.fingerprint:
                fabric.set_topology(stored)
    return fabric


main = service_main(LinkSettings, MIGRATIONS, build)
