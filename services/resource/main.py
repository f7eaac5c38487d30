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

from matrixcommon.model.clock import Clock
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixresource.allocations.allocator import Allocator
from matrixresource.api.access import ACCESS
from matrixresource.api.allocations import allocation_routes
from matrixresource.api.defragmentations import defragmentation_routes
from matrixresource.api.nodes import node_routes
from matrixresource.api.plans import plan_routes
from matrixresource.api.reports import report_routes
from matrixresource.api.topology import topology_routes
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.planning.planner import Planner
from matrixresource.scheduler import FORM
from matrixresource.store.history import delete_history
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.graph_document import compile_drawing, read_drawing_file
from matrixresource.topology.loading import load_spec
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.leadership import Leadership
from services.chassis.periodic import Periodic, compaction, follow_replicas, history_s
from services.chassis.run import service_main
from services.chassis.settings import LeaderSettings
from services.resource.controllers import (
    AllocationControllers,
    DefragmentationControllers,
    NodeControllers,
    ReportControllers,
    TopologyControllers,
)
from services.resource.metrics import LEASES_SUSPENDED, ResourceMetrics

log = logging.getLogger(__name__)

MIGRATIONS = Migrations("resource", Base.metadata)

LEASE_WATCH_PERIOD_S = 5.0
METRICS_PERIOD_S = 30.0


class ResourceSettings(LeaderSettings):
    """MatrixResource: inventory, topology and allocations of the supernodes."""

    supernodes: int = Field(1, ge=1, le=8, description="supernodes to put into an empty inventory")
    policy: Literal["best", "tightest", "learning"] = Field(
        "best",
        description="choice among placements that fit: tightest fit weighted by the sizes and departure times seen so "
        "far (best), by the sizes alone (learning), or unweighted (tightest)",
    )
    spec: Path | None = Field(
        None,
        description="YAML file with the numbers of a new supernode, or the name of a built-in machine; by default "
        "CloudMatrix384",
    )
    topology: Path | None = Field(
        None,
        description="topology graph of a supernode (node-link JSON or GraphML); by default wired as its numbers say",
    )
    lease_watch: float = Field(
        LEASE_WATCH_PERIOD_S, ge=0.1, le=600, description="emulated seconds between checks for expired leases"
    )
    lease_grace: float = Field(
        60.0, gt=0, description="emulated seconds after the start in which silent agents are not counted as lost"
    )


def build(
    settings: ResourceSettings, clock: Clock, database: DatabaseEngine, executor: Executor | None = None
) -> FastAPI:
    """The application over a migrated database. `executor` runs long searches, by default in threads."""
    log.info("allocator", extra={"form": str(FORM)})
    spec = load_spec(settings.spec)
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    fences = Fences(records)
    records.executor = executor
    store = ResourceStore(records)
    drawn = compile_drawing(read_drawing_file(settings.topology), spec) if settings.topology else None
    topology_manager = TopologyManager(store, clock, spec, drawn)
    topology_manager.seed(f"sn{index}" for index in range(settings.supernodes))
    allocator = Allocator(store, clock, settings.policy)
    allocations = AllocationControllers(allocator, clock)
    reporting = ReportControllers(
        store,
        allocations,
        allocator,
        topology_manager,
        clock,
        lease_grace_s=settings.lease_grace,
        lease_watch_s=settings.lease_watch,
    )
    nodes = NodeControllers(store, allocator, clock)
    defragmentation = DefragmentationControllers(store, allocator, clock)
    topology = TopologyControllers(topology_manager, clock)

    registry = CollectorRegistry()
    capacity = CapacityReport(store, allocator.ledger)
    metrics = ResourceMetrics(registry, store, capacity)
    LEASES_SUSPENDED.read(registry, lambda: reporting.reports.suspended_s)
    allocator.decided.append(metrics.record_decision)

    def delete_old() -> None:
        delete_history(store, before=clock.now() - history_s(clock))

    return create_app(
        "resource",
        "MatrixResource",
        [
            topology_routes(store, topology_manager, allocations.replenish),
            node_routes(store, allocator, reporting.reports, nodes.lifecycle, allocations.replenish),
            allocation_routes(store, allocator, nodes.lifecycle, allocations.replenish),
            report_routes(store, reporting.reports, clock, defragmentation.operations.stuck),
            plan_routes(store, Planner(store, allocator.ledger, clock), capacity),
            defragmentation_routes(store, defragmentation.service, defragmentation.operations),
        ],
        ACCESS,
        fences=fences,
        tokens=Tokens(settings.tokens),
        watchers=[
            *reporting.periodics,
            *allocations.periodics,
            *nodes.periodics,
            *topology.periodics,
            compaction(records, clock, before_compaction=delete_old),
            Periodic("update", metrics.update, clock, period_s=METRICS_PERIOD_S, floor_wall_s=5.0),
        ],
        leadership=Leadership("resource", records, fences, clock, lease_wall_s=settings.leader_lease),
        leader_watchers=defragmentation.led,
        leader_tasks=[
            defragmentation.runner.run,
            partial(follow_replicas, records, defragmentation.resumption.nudge),
        ],
        registry=registry,
        records=records,
        on_stop=database.close,
    )


main = service_main(ResourceSettings, MIGRATIONS, build)
