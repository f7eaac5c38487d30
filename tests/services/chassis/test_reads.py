"""Who only looks changes nothing, and leaves what the connection has prepared as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import InvalidRequestError

from matrixcommon.persistence.database_session import Database
from matrixcompute.store.store import Base, InstanceRow
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from tests.clocks import LoopClock
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres


def records(database: DatabaseEngine) -> Database:
    database.migrate(MIGRATIONS)
    found = Database(database.sessions, Base.metadata, LoopClock(0.0), database.shared)
    with found.transaction() as session:
        session.add(InstanceRow(name="a", project="default", spec={"nodes": 1}, state="Pending"))
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseEngine]:
    if request.param == "sqlite":
        yield DatabaseEngine(f"sqlite:///{tmp_path / 'a.db'}")
    else:
        with a_database() as url:
            engine = DatabaseEngine(url)
            yield engine
            engine.close()


def labels(found: Database) -> dict[str, str]:
    with found.reading() as session:
        return session.scalars(select(InstanceRow.labels)).one()


@pytest.mark.parametrize("how", ["not sent", "flushed by a question", "by a statement"])
async def test_what_was_changed_while_looking_is_thrown_away(database: DatabaseEngine, how: str) -> None:
    found = records(database)
    with found.reading() as session:
        row = session.scalars(select(InstanceRow)).one()
        if how == "by a statement":
            session.execute(update(InstanceRow).values(labels={"a": "b"}))
        else:
            row.labels = {"a": "b"}
        if how == "flushed by a question":
            assert session.scalars(select(InstanceRow).where(InstanceRow.project == "default")).one() is row
    assert labels(found) == {}


async def test_what_was_read_is_whole_afterwards(database: DatabaseEngine) -> None:
    found = records(database)
    with found.reading() as session:
        row = session.scalars(select(InstanceRow)).one()
    assert (row.name, row.spec, row.labels) == ("a", {"nodes": 1}, {})


@needs_postgres
async def test_statements_stay_prepared_while_others_are_looked_for() -> None:
    with a_database() as url:
        database = DatabaseEngine(url)
        found = records(database)
        for _ in range(20):
            labels(found)
            found.latest()
        with found.reading() as session:
            kept = session.scalar(text("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE '_pg3%'"))
        database.close()
    assert kept is not None
    assert kept >= 2


async def test_nobody_uses_a_session_after_its_end(database: DatabaseEngine) -> None:
    """It would begin a transaction that nobody ends."""
    with records(database).reading() as session:
        assert session.get(InstanceRow, "a") is not None
    with pytest.raises(InvalidRequestError, match="permanently closed"):
        session.get(InstanceRow, "b")
