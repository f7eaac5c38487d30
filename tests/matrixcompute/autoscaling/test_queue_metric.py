"""How long instances waited for their nodes: counted once each, from being asked for to the first commitment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from matrixcommon.persistence.database_session import Database
from matrixcompute.store.store import Base, ComputeStore
from services.chassis.database import DatabaseEngine
from services.chassis.leadership import Leadership
from services.compute.main import MIGRATIONS, build
from services.compute.metrics import InstanceMetrics
from services.compute.settings import ComputeSettings
from tests.clocks import FixedClock, LoopClock


def test_queue_time_is_counted_once_per_instance(tmp_path: Path) -> None:
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'compute.db'}")
    database.migrate(MIGRATIONS)
    clock = FixedClock()
    store = ComputeStore(Database(database.sessions, Base.metadata, clock))
    start = clock.now()

    def say(instance: str, reason: str, at: float, message: str = "") -> None:
        with store.transaction() as session:
            store.record_event(session, instance, reason, message, start + at)

    say("early", "Requested", -100)
    say("early", "Scheduled", -40)
    registry = CollectorRegistry()
    metrics = InstanceMetrics(registry, store, clock)
    say("one", "Requested", 10)
    say("two", "Requested", 11)
    say("one", "Scheduled", 15)

    def counted() -> tuple[float | None, float | None]:
        asyncio.run(metrics.count())
        return tuple(
            registry.get_sample_value(f"matrixcompute_instance_queue_seconds_{each}") for each in ("count", "sum")
        )

    assert counted() == (1, 5)
    say("one", "Scheduled", 20, "grown")
    say("two", "Scheduled", 51)
    assert counted() == (2, 45), "a changed shape has not waited in the queue"
    say("one", "Requested", 60, "made anew under its name")
    say("one", "Scheduled", 63, "again")
    assert counted() == (3, 48)
    assert counted() == (3, 48)


class Replica:
    """One process of MatrixCompute, which leads or stands by, over a database that others write."""

    def __init__(self, store: ComputeStore, clock: FixedClock) -> None:
        self.leads = False
        self.registry = CollectorRegistry()
        self._metrics = InstanceMetrics(self.registry, store, clock, lambda: self.leads)

    def shown(self) -> tuple[float | None, float | None]:
        """How many instances are Pending, and how many it has seen placed."""
        asyncio.run(self._metrics.count())
        pending = self.registry.get_sample_value("matrixcompute_instances", {"state": "Pending"})
        return pending, self.registry.get_sample_value("matrixcompute_instance_queue_seconds_count")


def test_standby_shows_gauges_and_counts_no_events(tmp_path: Path) -> None:
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'compute.db'}")
    database.migrate(MIGRATIONS)
    clock = FixedClock()
    store = ComputeStore(Database(database.sessions, Base.metadata, clock))
    one, other = Replica(store, clock), Replica(store, clock)

    def placed(instance: str, at: float) -> None:
        with store.transaction() as session:
            store.record_event(session, instance, "Requested", "", clock.now() + at)
            store.record_event(session, instance, "Scheduled", "", clock.now() + at + 1)

    one.leads = True
    placed("a", 10)
    assert (one.shown(), other.shown()) == ((0, 1), (0, 0))
    one.leads, other.leads = False, True
    placed("b", 20)
    assert (one.shown(), other.shown()) == ((0, 1), (0, 1))


@pytest.mark.looptime
async def test_standby_counts_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "_try_acquire", lambda self: None)
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'compute.db'}")
    database.migrate(MIGRATIONS)
    app = build(ComputeSettings(state=tmp_path), LoopClock(0.0), database)
    async with app.router.lifespan_context(app):
        async with asyncio.timeout(3600):
            while not app.state.watchers["count"].runs:
                await asyncio.sleep(1)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://compute") as http:
            assert 'matrixcompute_instances{state="Pending"} 0.0' in (await http.get("/metrics")).text
