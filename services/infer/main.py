"""Starts CloudMatrix-Infer: `python -m services.infer --help`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from infer_workload.openai import completions
from infer_workload.serving import api
from infer_workload.serving.access import ACCESS
from infer_workload.serving.metrics import DeploymentMetrics
from infer_workload.serving.ports import FabricViews, Hardware
from infer_workload.serving.service import Serving
from infer_workload.serving.store import Base, InferStore
from infer_workload.serving.workload_traffic import DecodeTraffic
from matrixcommon.api.client import at, call, list_all
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Gone, MatrixError, NotFound
from matrixcommon.model.resource_key import key_of
from matrixcommon.persistence.database_session import Database
from matrixlink.client import LinkClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, opened
from services.chassis.http import http_client
from services.chassis.logging import configure
from services.chassis.periodic import Periodic
from services.chassis.run import serve
from services.infer.settings import InferSettings

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"

FABRIC_PERIOD_S = 1.0
FABRIC_FLOOR_WALL_S = 0.3
FABRIC_REST_WALL_S = 0.05
WATCH_RETRY_WALL_S = 1.0
ACCOUNTS_FLOOR_WALL_S = 2.0
COMPACTION_PERIOD_S = 600.0
JOURNAL_KEPT_WALL_S = 600.0


class HardwareOverHttp:
    """The emulated hardware: asked which of its nodes have no power, and informed what the workload sends."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def unpowered(self) -> frozenset[str]:
        return frozenset(each["name"] for each in await list_all(self._http, "/v1/nodes", {"powered": "false"}))

    async def up(self) -> frozenset[str]:
        return frozenset(each["name"] for each in await list_all(self._http, "/v1/nodes", {"status": "Active"}))

    async def offer(self, name: str, traffic: DecodeTraffic | None) -> None:
        if traffic is None:
            with suppress(NotFound):
                await call(self._http, "DELETE", at("traffic", name))
            return
        body = {"instance": traffic.instance, "plane": "ub", "pattern": "all-to-all", "members": list(traffic.nodes)}
        await call(self._http, "PUT", at("traffic", name), body=body | {"gbpsPerNpu": traffic.gbps_per_npu})

    async def traffic_names(self) -> frozenset[str]:
        return frozenset(key_of(each["project"], each["name"]) for each in await list_all(self._http, "/v1/traffic"))


def build(
    settings: InferSettings,
    clock: Clock,
    database: DatabaseEngine,
    views: FabricViews | None = None,
    hardware: Hardware | None = None,
) -> FastAPI:
    """The application over a migrated database. `views` and `hardware` stand for the other processes in tests."""
    records = Database(database.sessions, Base.metadata, clock)
    link = views or LinkClient(http_client(settings.link_url, settings.token))
    rng = Random(SystemRandom().randrange(1 << 32) if settings.seed is None else settings.seed)
    endpoint = (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/") + "/v1"
    if hardware is None and settings.agents_url:
        hardware = HardwareOverHttp(http_client(settings.agents_url, settings.token))
    serving = Serving(InferStore(records), clock, link, rng, endpoint, hardware)
    serving.restore()

    async def compact() -> str:
        return f"{records.compact(clock.at_least_wall(0, JOURNAL_KEPT_WALL_S))} changes forgotten"

    fabric = Periodic(
        "fabric",
        serving.follow_fabric,
        clock,
        period_s=FABRIC_PERIOD_S,
        floor_wall_s=FABRIC_FLOOR_WALL_S,
        rest_floor_wall_s=FABRIC_REST_WALL_S,
    )
    serving.look_again = fabric.nudge
    registry = CollectorRegistry()
    registry.register(DeploymentMetrics(serving))
    tasks: list[Callable[[], Awaitable[Any]]] = [serving.run]
    if isinstance(link, LinkClient):
        tasks.append(lambda: nudge_on_changes(link, fabric.nudge))
    app = create_app(
        "infer",
        "CloudMatrix-Infer",
        [api.routes(serving), completions.routes(serving)],
        ACCESS,
        tokens=Tokens(settings.tokens),
        watchers=[
            fabric,
            Periodic("hardware", serving.observe_power, clock, period_s=1.0, floor_wall_s=FABRIC_FLOOR_WALL_S),
            Periodic("traffic", serving.show_traffic, clock, period_s=5.0, floor_wall_s=1.0),
            Periodic("accounts", serving.settle_accounts, clock, period_s=10.0, floor_wall_s=ACCOUNTS_FLOOR_WALL_S),
            Periodic("compact", compact, clock, period_s=COMPACTION_PERIOD_S, floor_wall_s=60.0),
        ],
        tasks=tasks,
        registry=registry,
        on_stop=database.close,
    )
    app.state.serving = serving
    return app


async def nudge_on_changes(link: LinkClient, nudge: Callable[[], None]) -> None:
    """For ever: look at the fabric when a slice changes, without waiting for the period."""
    since: int | None = None
    while True:
        try:
            async for event in link.watch("slices", since):
                since = event.rv
                if event.type != "BOOKMARK":
                    nudge()
        except Gone:
            since = None
        except MatrixError as refused:
            log.info("watch of slices ended", extra={"why": refused.message})
        await asyncio.sleep(WATCH_RETRY_WALL_S)


def main(argv: Sequence[str] | None = None) -> None:
    settings = InferSettings.load("infer", argv)
    configure("infer", settings.log_level)
    database = opened(settings.database_url("infer"), MIGRATIONS)
    serve(build(settings, settings.clock(), database), settings)
