"""Starts CloudMatrix-Infer: `python -m services.infer --help`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random, SystemRandom

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from infer_workload import api, completions
from infer_workload.metrics import DeploymentMetrics
from infer_workload.ports import FabricViews
from infer_workload.serving import Serving
from infer_workload.store import Base, InferStore
from matrixlink.client import LinkClient
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.records import Records
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import Database
from services.chassis.http import http_client
from services.chassis.logging import configure
from services.chassis.periodic import Periodic
from services.chassis.run import serve
from services.infer.settings import InferSettings

MIGRATIONS = Path(__file__).parent / "migrations"

FABRIC_PERIOD_S = 1.0
FABRIC_FLOOR_WALL_S = 0.3
ACCOUNTS_FLOOR_WALL_S = 2.0
COMPACTION_PERIOD_S = 600.0
JOURNAL_KEPT_WALL_S = 600.0


def build(settings: InferSettings, clock: Clock, database: Database, views: FabricViews | None = None) -> FastAPI:
    """The application over a migrated database. `views` stands for MatrixLink in tests."""
    records = Records(database.sessions, Base.metadata, clock)
    link = views or LinkClient(http_client(settings.link_url, settings.token))
    rng = Random(SystemRandom().randrange(1 << 32) if settings.seed is None else settings.seed)
    endpoint = (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/") + "/v1"
    serving = Serving(InferStore(records), clock, link, rng, endpoint)
    serving.restore()

    async def compact() -> str:
        return f"{records.compact(clock.at_least_wall(0, JOURNAL_KEPT_WALL_S))} changes forgotten"

    fabric = Periodic(
        "fabric", serving.follow_fabric, clock, period_s=FABRIC_PERIOD_S, floor_wall_s=FABRIC_FLOOR_WALL_S
    )
    serving.look_again = fabric.nudge
    registry = CollectorRegistry()
    registry.register(DeploymentMetrics(serving))
    app = create_app(
        "infer",
        "CloudMatrix-Infer",
        [api.routes(serving), completions.routes(serving)],
        tokens=Tokens(settings.tokens),
        watchers=[
            fabric,
            Periodic("accounts", serving.settle_accounts, clock, period_s=10.0, floor_wall_s=ACCOUNTS_FLOOR_WALL_S),
            Periodic("compact", compact, clock, period_s=COMPACTION_PERIOD_S, floor_wall_s=60.0),
        ],
        tasks=[serving.run],
        registry=registry,
        on_stop=database.close,
    )
    app.state.serving = serving
    return app


def main(argv: Sequence[str] | None = None) -> None:
    settings = InferSettings.load("infer", argv)
    configure("infer", settings.log_level)
    database = Database(settings.database_url("infer"))
    database.migrate(MIGRATIONS)
    serve(build(settings, settings.clock(), database), settings)
