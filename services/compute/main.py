"""Starts MatrixCompute: `python -m services.compute --help`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Gone, MatrixError
from matrixcommon.model.resource_key import key_of, resolve
from matrixcommon.persistence.database_session import Database
from matrixcompute.access import ACCESS
from matrixcompute.api.instances import routes
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.instances.service import Conductor
from matrixcompute.operations.saga import SagaRunner
from matrixcompute.reconcilers.defragmentation_executor import DefragmentationExecutor
from matrixcompute.reconcilers.instances import InstanceReconciler
from matrixcompute.reconcilers.orphan_collector import OrphanCollector
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import Base, ComputeStore
from matrixcompute.workflows.change_instance import MOVE_INSTANCE, RELOCATE_MEMBER, REPLACE_NODE, SCALE_INSTANCE
from matrixcompute.workflows.create_instance import CREATE_INSTANCE
from matrixcompute.workflows.delete_instance import DELETE_INSTANCE
from matrixcompute.workflows.yield_capacity import YIELD_CAPACITY_WORKFLOW
from matrixlink.client import LinkClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, opened
from services.chassis.http import http_client
from services.chassis.logging import configure
from services.chassis.periodic import Periodic
from services.chassis.run import serve
from services.chassis.settings import ServiceSettings
from services.compute.metrics import InstanceMetrics

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"

ALL = (
    CREATE_INSTANCE,
    SCALE_INSTANCE,
    MOVE_INSTANCE,
    RELOCATE_MEMBER,
    REPLACE_NODE,
    YIELD_CAPACITY_WORKFLOW,
    DELETE_INSTANCE,
)
SAGAS = {saga.verb: saga for saga in ALL}

RECONCILE_PERIOD_S = 10.0
ORPHAN_PERIOD_S = 60.0
MEMBER_MOVES_PERIOD_S = 30.0
COMPACTION_PERIOD_S = 600.0
KEPT_WALL_S = 3600.0
"""Journal, events and finished operations are kept for an hour of the wall, or a day of emulated time if longer."""
KEPT_S = 86_400.0
WATCH_RETRY_WALL_S = 0.5


class ComputeSettings(ServiceSettings):
    """MatrixCompute: the life of instances, and their recovery."""

    resource_url: str = Field("http://127.0.0.1:8401", description="where MatrixResource is")
    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    lost_per_cabinet: int = Field(
        4, ge=1, description="safety stop: nodes of one cabinet silent at once and still repaired"
    )
    lost_per_supernode: int = Field(8, ge=1, description="safety stop: the same for a whole supernode")


def build(settings: ComputeSettings, clock: Clock, database: DatabaseEngine, neighbours: ControlPlane) -> FastAPI:
    """The application over a migrated database."""
    records = Database(database.sessions, Base.metadata, clock)
    store = ComputeStore(records)
    policy = RecoveryPolicy(settings.lost_per_cabinet, settings.lost_per_supernode)
    runner = SagaRunner(SAGAS, store, neighbours, clock, policy)

    async def resume() -> str:
        return f"{runner.resume()} sagas under way"

    resumption = Periodic("saga-resumption", resume, clock, period_s=30.0, floor_wall_s=1.0)
    conductor = Conductor(store, neighbours, runner, clock, resumption.nudge)
    tender = InstanceReconciler(store, neighbours, runner, clock, policy, resumption.nudge)
    reconciling = Periodic(
        "node-health",
        tender.reconcile,
        clock,
        period_s=RECONCILE_PERIOD_S,
        floor_wall_s=1.0,
        rest_s=2.0,
        rest_floor_wall_s=0.1,
    )
    moves = DefragmentationExecutor(store, neighbours, conductor)
    moving = Periodic("member-moves", moves.reconcile, clock, period_s=MEMBER_MOVES_PERIOD_S, floor_wall_s=1.0)
    orphans = OrphanCollector(store, neighbours)

    async def compact() -> str:
        kept_s = clock.at_least_wall(KEPT_S, KEPT_WALL_S)
        with store.transaction() as session:
            old = store.forget_before(session, clock.now() - kept_s)
        return f"{old} old records and {records.compact(kept_s)} changes forgotten"

    def follow(
        collection: str, watcher: Periodic, instance_of: Callable[[dict[str, Any]], str] | None = None
    ) -> Callable[[], Awaitable[None]]:
        async def following() -> None:
            """Nudge a watcher, and the saga of the instance that it is about, at every change a neighbour reports."""
            since: int | None = None
            while True:
                try:
                    async for event in neighbours.watch(collection, since):
                        since = event.rv
                        if event.type != "BOOKMARK":
                            watcher.nudge()
                            if instance_of is not None:
                                runner.nudge(instance_of(event.view))
                except Gone:
                    since = None
                except MatrixError as refused:
                    log.info("watch ended", extra={"collection": collection, "why": refused.message})
                watcher.nudge()
                runner.nudge()  # whatever has changed meanwhile
                await asyncio.sleep(WATCH_RETRY_WALL_S)

        return following

    registry = CollectorRegistry()
    metrics = InstanceMetrics(registry, store, clock)

    return create_app(
        "compute",
        "MatrixCompute",
        [routes(store, conductor, runner, clock, reconciling.nudge)],
        ACCESS,
        tokens=Tokens(settings.tokens),
        watchers=[
            resumption,
            reconciling,
            moving,
            Periodic("orphan-release", orphans.reconcile, clock, period_s=ORPHAN_PERIOD_S, floor_wall_s=5.0),
            Periodic("compact", compact, clock, period_s=COMPACTION_PERIOD_S, floor_wall_s=60.0),
            Periodic("count", metrics.count, clock, period_s=30.0, floor_wall_s=5.0),
        ],
        tasks=[
            follow("allocations", reconciling, lambda view: key_of(view["project"], view["name"])),
            follow("slices", reconciling, lambda view: resolve(view["instance"], view["project"])),
            follow("defragmentations", moving),
        ],
        registry=registry,
        on_stop=database.close,
    )


def main(argv: Sequence[str] | None = None) -> None:
    settings = ComputeSettings.load("compute", argv)
    configure("compute", settings.log_level)
    database = opened(settings.database_url("compute"), MIGRATIONS)
    link = LinkClient(http_client(settings.link_url, settings.token))
    neighbours = ControlPlane(http_client(settings.resource_url, settings.token), link)
    serve(build(settings, settings.clock(), database, neighbours), settings)
