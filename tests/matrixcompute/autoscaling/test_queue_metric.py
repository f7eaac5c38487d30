"""How long instances waited for their nodes: counted once each, from being asked for to the first commitment."""

from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import CollectorRegistry

from matrixcommon.persistence.database_session import Database
from matrixcompute.store.store import Base, ComputeStore
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from services.compute.metrics import InstanceMetrics
from tests.clocks import FixedClock


def test_time_in_queue_is_counted_once_for_each_instance(tmp_path: Path) -> None:
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
