"""Starts MatrixLink: `python -m services.link --help`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from pydantic import Field

from matrixlink.api import routes
from matrixlink.communicators.api import communicator_routes
from matrixlink.communicators.communicators import Communicators
from matrixlink.fabric.compiled import kernel
from matrixlink.fabric.link import Fabric
from matrixlink.leases import Leases
from matrixlink.store import Base, LinkStore
from matrixlink.switchboard import Switchboard
from matrixlink.watchers.link_health import LinkHealth
from matrixlink.watchers.link_reports import LinkReportReader
from matrixresource.topology import Supernode, SupernodeSpec
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.records import Records
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.database import Database
from services.chassis.logging import configure
from services.chassis.periodic import Periodic
from services.chassis.run import serve
from services.chassis.settings import ServiceSettings

MIGRATIONS = Path(__file__).parent / "migrations"

HEALTH_PERIOD_S = 5.0
COMPACTION_PERIOD_S = 600.0
JOURNAL_KEPT_WALL_S = 600.0


class LinkSettings(ServiceSettings):
    """MatrixLink: the three planes, slices and their bandwidth, routes, link health."""

    supernodes: int = Field(1, ge=1, le=8, description="supernodes in the fabric")
    spec: Path | None = Field(
        None, description="YAML file with the numbers of a supernode; the built-in CloudMatrix384"
    )
    lease_grace: float = Field(
        60.0, gt=0, description="emulated seconds after start in which silent agents are forgiven"
    )


def build(settings: LinkSettings, clock: Clock, database: Database) -> FastAPI:
    """The application over a migrated database."""
    spec = SupernodeSpec.load(settings.spec)
    records = Records(database.sessions, Base.metadata, clock)
    fabric = Fabric(Supernode(f"sn{index}", spec) for index in range(settings.supernodes))
    leases = Leases(clock, clock.at_least_wall(settings.lease_grace, 6.0))
    switchboard = Switchboard(LinkStore(records), fabric, clock, leases)
    health = Periodic("link-health", LinkHealth(switchboard).watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=0.5)

    communicators = Communicators(switchboard.store, fabric, clock)
    following = Periodic("communicators", communicators.watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=0.5)

    def ports_changed() -> None:
        communicators.follow()
        following.nudge()
        health.nudge()

    async def compact() -> str:
        return f"{records.compact(clock.at_least_wall(0, JOURNAL_KEPT_WALL_S))} changes forgotten"

    return create_app(
        "link",
        "MatrixLink",
        [
            routes(switchboard, LinkReportReader(switchboard, leases, ports_changed)),
            communicator_routes(communicators, fabric.supernodes),
        ],
        tokens=Tokens(settings.tokens),
        watchers=[
            health,
            following,
            Periodic("compact", compact, clock, period_s=COMPACTION_PERIOD_S, floor_wall_s=60.0),
        ],
        tasks=[lambda: asyncio.to_thread(kernel)],  # compiled once per machine, before the first flows need it
        on_stop=database.close,
    )


def main(argv: Sequence[str] | None = None) -> None:
    settings = LinkSettings.load("link", argv)
    configure("link", settings.log_level)
    database = Database(settings.database_url("link"))
    database.migrate(MIGRATIONS)
    app = build(settings, settings.clock(), database)
    gc.freeze()  # a collection need not look at what stays as long as the process
    serve(app, settings)
