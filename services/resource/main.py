"""Starts MatrixResource: `python -m services.resource --help`."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Literal

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field

from matrixcommon.model.clock import Clock, as_set
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcommon.workflows.operations import Operations
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.api.access import ACCESS
from matrixresource.api.allocations import routes
from matrixresource.api.defragmentations import defragmentation_routes
from matrixresource.api.topology import topology_routes
from matrixresource.controllers.defragmentation import ProposedPlans
from matrixresource.controllers.flapping import FlappingNodes
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.defragmentation.workflows import RoomHost
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.scheduler import FORM
from matrixresource.store.history import forget_history
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.graph_document import compiled_drawing, read_file
from matrixresource.topology.loading import load_spec
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic, compaction, follow_replicas, history_s
from services.chassis.run import main_of
from services.chassis.settings import LedSettings
from services.resource.metrics import LATE, ResourceMetrics

log = logging.getLogger(__name__)

MIGRATIONS = Migrations("resource", Base.metadata)

LEASE_WATCH_PERIOD_S, LEASE_WATCH_FLOOR_WALL_S = 5.0, 0.5
REPLENISH_PERIOD_S = 60.0
SETTLE_WATCH_PERIOD_S = 10.0
COUNT_PERIOD_S = 30.0
FLAPPING_PERIOD_S = 30.0
EXPIRY_PERIOD_S = 10.0
PROPOSED_PERIOD_S = 5.0


class ResourceSettings(LedSettings):
    """MatrixResource: inventory, topology and allocations of the supernodes."""

    supernodes: int = Field(1, ge=1, le=8, description="supernodes in the inventory, where the database has none")
    policy: Literal["best", "tightest", "learning"] = Field(
        "best",
        description="among places that fit: tightest fit with the sizes and leaving times seen so far (best), "
        "with the sizes alone (learning), or plain (tightest)",
    )
    spec: Path | None = Field(
        None, description="YAML file with the numbers of a new supernode, or a built-in machine by name; CloudMatrix384"
    )
    topology: Path | None = Field(
        None, description="a supernode as it is drawn (node-link JSON, GraphML); without it, wired as its numbers say"
    )
    lease_watch: float = Field(
        LEASE_WATCH_PERIOD_S, ge=0.1, le=600, description="emulated seconds between two looks at which leases ran out"
    )
    lease_grace: float = Field(
        60.0, gt=0, description="emulated seconds after start in which silent agents are forgiven"
    )


def build(
    settings: ResourceSettings, clock: Clock, database: DatabaseEngine, executor: Executor | None = None
) -> FastAPI:
    """The application over a migrated database. `executor`: where long searches run, by default in threads."""
    log.info("allocator", extra={"form": str(FORM)})
    spec = load_spec(settings.spec)
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    records.executor = executor
    store = ResourceStore(records)
    drawn = compiled_drawing(read_file(settings.topology), spec) if settings.topology else None
    topology_manager = TopologyManager(store, clock, spec, drawn)
    topology_manager.seed(f"sn{index}" for index in range(settings.supernodes))
    allocator = Allocator(store, clock, settings.policy)

    async def replenish() -> str:
        return f"{allocator.replenish()} spares taken"

    refill = Periodic(
        "replenish", replenish, clock, period_s=REPLENISH_PERIOD_S, floor_wall_s=2.0, rest_s=10.0, rest_floor_wall_s=1.0
    )

    async def expire() -> str:
        return f"{allocator.reservations.reconcile()}; {allocator.expire()} leases ended"

    reports = NodeReportProcessor(
        store,
        allocator,
        topology_manager,
        clock,
        grace_s=lambda: clock.at_least_wall(settings.lease_grace, 6.0),
        nudge=refill.nudge,
        watch_period_s=lambda: as_set(clock, settings.lease_watch, LEASE_WATCH_FLOOR_WALL_S),
    )

    host = RoomHost(store, allocator, clock)
    runner = host.runner()
    resumption = Periodic("workflow-resumption", runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
    operations = Operations(runner, host, clock, resumption.nudge)
    defragmentations = DefragmentationService(store, allocator.ledger, clock, runner)
    proposed = ProposedPlans(store, clock)

    async def survey() -> str:
        drained = ", ".join(topology_manager.finish_drains())
        return f"{topology_manager.reconcile() or 'no new topology version'}{drained and f'; drained: {drained}'}"

    registry = CollectorRegistry()
    capacity = CapacityReport(store, allocator.ledger)
    metrics = ResourceMetrics(registry, store, capacity)
    LATE.read(registry, lambda: reports.deaf_s)
    allocator.decided.append(metrics.decided)

    lifecycle = NodeLifecycle(store, allocator, clock)
    flapping = FlappingNodes(store, lifecycle, clock)

    def forget_old() -> None:
        forget_history(store, before=clock.now() - history_s(clock))

    return create_app(
        "resource",
        "MatrixResource",
        [
            topology_routes(store, topology_manager, refill.nudge),
            routes(store, allocator, reports, capacity, clock, lifecycle, refill.nudge, operations.stuck),
            defragmentation_routes(store, defragmentations, operations),
        ],
        ACCESS,
        fences=fences,
        tokens=Tokens(settings.tokens),
        watchers=[
            Periodic(
                "leases",
                reports.watch_leases,
                clock,
                period_s=settings.lease_watch,
                floor_wall_s=min(LEASE_WATCH_FLOOR_WALL_S, settings.lease_watch),
            ),
            refill,
            Periodic("expire", expire, clock, period_s=EXPIRY_PERIOD_S, floor_wall_s=0.5),
            Periodic("flapping", flapping.reconcile, clock, period_s=FLAPPING_PERIOD_S, floor_wall_s=1.0),
            Periodic("topology", survey, clock, period_s=SETTLE_WATCH_PERIOD_S, floor_wall_s=0.5),
            compaction(records, clock, also=forget_old),
            Periodic("count", metrics.count, clock, period_s=COUNT_PERIOD_S, floor_wall_s=5.0),
        ],
        leadership=Leadership("resource", records, fences, clock, lease_wall_s=settings.leader_lease),
        led=[
            resumption,
            Periodic("proposed-plans", proposed.reconcile, clock, period_s=PROPOSED_PERIOD_S, floor_wall_s=0.5),
        ],
        led_tasks=[runner.run, partial(follow_replicas, records, resumption.nudge)],
        registry=registry,
        on_stop=database.close,
    )


main = main_of(ResourceSettings, MIGRATIONS, build)
