"""A replica that stands still in the midst of a transaction holds nobody up for long, and finds itself refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.exc import DBAPIError

from matrixcommon.persistence import postgres_sessions
from matrixcommon.persistence.database_session import Database
from matrixcompute.store.store import Base, InstanceRow
from services.chassis.database import DatabaseEngine, database_unavailable_reason
from services.compute.main import MIGRATIONS
from tests.clocks import LoopClock
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres

pytestmark = [needs_postgres, pytest.mark.timeout(120)]


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Database, Database]]:
    """Two processes' views of one database, with patience for one second."""
    for name in ("LOCK_TIMEOUT_WALL_S", "IDLE_TRANSACTION_TIMEOUT_WALL_S"):
        monkeypatch.setattr(postgres_sessions, name, 1)
    with a_database() as url:
        engines = [DatabaseEngine(url), DatabaseEngine(url)]
        try:
            for engine in engines:
                engine.migrate(MIGRATIONS)
            first, second = (Database(each.sessions, Base.metadata, LoopClock(0.0), shared=True) for each in engines)
            yield first, second
        finally:
            for engine in engines:
                engine.close()


def write(records: Database, name: str) -> None:
    with records.transaction() as session:
        session.add(InstanceRow(name=name, project="default", spec={"nodes": 1}, state="Pending"))


def names(records: Database) -> list[str]:
    with records.reading() as session:
        return sorted(row.name for row in session.query(InstanceRow))


def stand_still(paused: Database, meanwhile: Callable[[], None]) -> None:
    """A verb of one replica, and in its midst what others do."""
    with paused.transaction() as session:
        session.add(InstanceRow(name="half", project="default", spec={"nodes": 1}, state="Pending"))
        session.flush()
        meanwhile()
        session.add(InstanceRow(name="late", project="default", spec={"nodes": 1}, state="Pending"))


async def test_the_others_write_on_and_what_it_had_begun_is_undone(replicas: tuple[Database, Database]) -> None:
    paused, awake = replicas
    refused: list[DBAPIError] = []

    def until_written() -> None:
        while "whole" not in names(awake):
            try:
                write(awake, "whole")
            except DBAPIError as waits:
                refused.append(waits)

    with pytest.raises(DBAPIError) as woken:
        stand_still(paused, until_written)
    assert names(awake) == ["whole"]
    assert database_unavailable_reason(woken.value), "whoever asked the paused one is told to ask again"
    assert all(database_unavailable_reason(each) for each in refused)
    write(paused, "awake again")
    assert names(paused) == ["awake again", "whole"]
