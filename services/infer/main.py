"""Starts CloudMatrix-Infer: `python -m services.infer --help`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import Field

from infer_workload.access import ACCESS
from infer_workload.metering import api as metering_api
from infer_workload.metering.tables import Base
from infer_workload.openai import completions
from infer_workload.report_store import api as report_api
from infer_workload.report_store.service import ReportStore
from infer_workload.serving import api
from infer_workload.serving.metrics import DeploymentMetrics
from infer_workload.serving.ports import Burst, FabricViews, Hardware, ServerMemory, WorkloadLoad
from infer_workload.serving.service import Serving
from infer_workload.serving.store import InferStore
from infer_workload.timing.calibration import machines
from infer_workload.timing.data_files import BadDataFile
from infer_workload.timing.model import catalogue
from matrixcommon.api.client import Collection
from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_key import key_of
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixlink.client import LinkClient
from matrixlink.fabric.contention.ports_left import AvailablePorts
from matrixresource.client import ResourceClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import DatabaseEngine, Migrations
from services.chassis.http import http_client
from services.chassis.periodic import Periodic, compaction, follow, nudge_on_event
from services.chassis.run import service_main
from services.chassis.settings import ServiceSettings
from services.infer.refusals import refuse

MIGRATIONS = Migrations("infer", Base.metadata)

FABRIC_PERIOD_S = 1.0
FABRIC_FLOOR_WALL_S = 0.3
FABRIC_REST_WALL_S = 0.05
MEMORY_PERIOD_S = 5.0
ACCOUNTS_FLOOR_WALL_S = 2.0


class InferSettings(ServiceSettings):
    """CloudMatrix-Infer: serving deployments and their OpenAI-compatible endpoint."""

    EVENT_LOOP = "asyncio"

    link_url: str = Field("http://127.0.0.1:8402", description="URL of MatrixLink")
    resource_url: str = Field(
        "http://127.0.0.1:8401", description="URL of MatrixResource; empty: memory of caches is not allocated there"
    )
    agents_url: str = Field(
        "http://127.0.0.1:8405",
        description="URL of the emulated hardware; empty: its power and contention have no effect",
    )
    models: Path | None = Field(None, description="folder of additional model files")
    machines: Path | None = Field(None, description="folder of additional machine files")
    public_url: str = Field("", description="URL of this service for users; by default its own address")

    @property
    def endpoint(self) -> str:
        """URL of the OpenAI-compatible endpoint for users; a wildcard address becomes that of this host."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        own = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        return (self.public_url or own).rstrip("/") + "/v1"


UP, OFF = "Active", ("Stopping", "Off")
"""The agent statuses of a node that has booted, and of one that is switched off or about to be."""


class HardwareOverHttp:
    """The emulated hardware over HTTP: power and status of nodes, and the workload's traffic."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._nodes, self._traffic = Collection(http, "nodes"), Collection(http, "traffic")

    async def unpowered(self) -> frozenset[str]:
        return frozenset(each["name"] for each in await self._nodes.all(powered="false"))

    async def up_and_off(self) -> tuple[frozenset[str], frozenset[str]]:
        found = await self._nodes.all(status=[UP, *OFF])
        up = frozenset(each["name"] for each in found if each["status"] == UP)
        return up, frozenset(each["name"] for each in found) - up

    async def offer(self, name: str, load: WorkloadLoad | None) -> None:
        if load is None:
            await self._traffic.delete(name)
            return
        body: dict[str, Any] = {
            "instance": load.instance, "plane": load.plane, "pattern": load.pattern, "members": list(load.nodes),
            "gbpsPerNpu": load.gbps_per_npu, "bursts": True,
        }  # fmt: skip
        await self._traffic.ensure(name, body | ({"targets": list(load.targets)} if load.targets else {}))

    async def bursts(self) -> Mapping[str, Burst]:
        return {key_of(each["project"], each["name"]): _burst(each["burst"]) for each in await self._all_bursts()}

    async def _all_bursts(self) -> list[dict[str, Any]]:
        return [each for each in await self._traffic.all() if each.get("burst")]

    async def traffic_names(self) -> frozenset[str]:
        return frozenset(key_of(each["project"], each["name"]) for each in await self._traffic.all())


def _burst(shown: dict[str, Any]) -> Burst:
    ports = {
        node: AvailablePorts(each["outGbps"], each["inGbps"], each["endpointOutGbps"], each["endpointInGbps"])
        for node, each in shown["ports"].items()
    }
    return Burst(shown.get("gbpsPerDie"), ports)


Kind = TypeVar("Kind")


def _load_or_exit(setting: str, read: Callable[[Path | None], dict[str, Kind]], folder: Path | None) -> dict[str, Kind]:
    """Read the included files and those of a folder. Exits naming the file and field if one is invalid."""
    try:
        return read(folder)
    except BadDataFile as wrong:
        raise SystemExit(f"infer: --{setting} (CLOUDMATRIX_{setting.upper()}): {wrong}") from wrong


def build(
    settings: InferSettings,
    clock: Clock,
    database: DatabaseEngine,
    views: FabricViews | None = None,
    hardware: Hardware | None = None,
    memory: ServerMemory | None = None,
) -> FastAPI:
    """The application over a migrated database. `views`, `hardware` and `memory` replace the other processes in
    tests."""
    records = Database(database.sessions, Base.metadata, clock, database.shared)
    link = views or LinkClient(http_client(settings.link_url, settings.token))
    rng = Random(SystemRandom().randrange(1 << 32) if settings.seed is None else settings.seed)
    if hardware is None and settings.agents_url:
        hardware = HardwareOverHttp(http_client(settings.agents_url, settings.token))
    if memory is None and views is None and settings.resource_url:
        memory = ResourceClient(http_client(settings.resource_url, settings.token))
    models = _load_or_exit("models", catalogue, settings.models)
    calibrations = _load_or_exit("machines", machines, settings.machines)
    serving = Serving(InferStore(records), clock, link, rng, settings.endpoint, hardware, models, memory, calibrations)
    serving.restore()

    fabric = Periodic(
        "fabric",
        serving.watchers.observe_fabric,
        clock,
        period_s=FABRIC_PERIOD_S,
        floor_wall_s=FABRIC_FLOOR_WALL_S,
        rest_floor_wall_s=FABRIC_REST_WALL_S,
    )
    serving.enqueue_fabric = fabric.nudge
    memories = Periodic(
        "memory", serving.watchers.reconcile_memory, clock, period_s=MEMORY_PERIOD_S, floor_wall_s=FABRIC_FLOOR_WALL_S
    )
    serving.enqueue_memory = memories.nudge
    registry = CollectorRegistry()
    registry.register(DeploymentMetrics(serving))
    tasks: list[Callable[[], Awaitable[Any]]] = [serving.driver.run]
    if isinstance(link, LinkClient):
        tasks.append(partial(follow, partial(link.watch, "slices"), nudge_on_event(fabric.nudge)))
    app = create_app(
        "infer",
        "CloudMatrix-Infer",
        [
            api.routes(serving),
            metering_api.routes(serving.usage),
            report_api.routes(ReportStore(records)),
            completions.routes(serving),
        ],
        ACCESS,
        tokens=Tokens(settings.tokens),
        watchers=[
            fabric,
            memories,
            Periodic("hardware", serving.watchers.observe_power, clock, period_s=1.0, floor_wall_s=FABRIC_FLOOR_WALL_S),
            Periodic("traffic", serving.watchers.sync_traffic, clock, period_s=5.0, floor_wall_s=1.0),
            Periodic(
                "accounts", serving.usage.flush_and_roll_up, clock, period_s=10.0, floor_wall_s=ACCOUNTS_FLOOR_WALL_S
            ),
            compaction(records, clock),
        ],
        tasks=tasks,
        registry=registry,
        records=records,
        on_stop=database.close,
        fences=Fences(records),
        render_error=refuse,
        probes=("/health",),  # vLLM's
    )
    app.state.serving = serving
    return app


main = service_main(InferSettings, MIGRATIONS, build)
