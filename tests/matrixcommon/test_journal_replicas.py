"""Replicas on one database: a watch of one is shown every change or told that some are gone, whatever others do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import event

from matrixcommon.model.errors import Gone
from matrixcommon.persistence.database_session import Database
from matrixcompute.store.store import Base, InstanceRow
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres

pytestmark = [needs_postgres, pytest.mark.timeout(120)]


@dataclass
class Replicas:
    """Two processes' views of one database."""

    engines: list[DatabaseEngine]
    clock: FixedClock

    def __post_init__(self) -> None:
        self.one, self.other = (
            Database(each.sessions, Base.metadata, self.clock, shared=True) for each in self.engines
        )

    def write(self, *names: str) -> None:
        for name in names:
            with self.other.transaction() as session:
                session.add(InstanceRow(name=name, project="default", spec={"nodes": 1}, state="Pending"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with a_database() as url:
        yield url


@pytest.fixture
def replicas(server: str) -> Iterator[Replicas]:
    engines = [DatabaseEngine(server), DatabaseEngine(server)]
    try:
        engines[0].migrate(MIGRATIONS)
        with engines[0].engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                connection.execute(table.delete())
        yield Replicas(engines, FixedClock())
    finally:
        for each in engines:
            each.close()


@contextmanager
def before_statement(replicas: Replicas, number: int, act: Callable[[], object]) -> Iterator[list[str]]:
    """The other process acts right before that statement of the first one; which there were."""
    statements: list[str] = []

    def counting(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)
        if len(statements) == number:
            act()

    event.listen(replicas.engines[0].engine, "before_cursor_execute", counting)
    try:
        yield statements
    finally:
        event.remove(replicas.engines[0].engine, "before_cursor_execute", counting)


def numbers_of(found: Replicas, since: int) -> list[int] | None:
    """Of the changes after `since`; None where they are gone."""
    try:
        return [change.rv for change in found.one.changes_since("instance", since)]
    except Gone:
        return None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_changes_compacted_while_a_watch_reads_are_shown_or_gone(replicas: Replicas, number: int) -> None:
    replicas.write("a", "b", "c")
    replicas.clock.at += 1000.0
    replicas.write("d")
    with before_statement(replicas, number, lambda: replicas.other.compact(keep_s=500.0)):
        found = numbers_of(replicas, 0)
    assert found in (None, [1, 2, 3, 4])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_number_is_skipped_by_a_commit_while_a_watch_reads(replicas: Replicas, number: int) -> None:
    replicas.write("a")
    with before_statement(replicas, number, lambda: replicas.write("b")) as statements:
        found, newest = replicas.one.read_changes("instance", 0)
    if len(statements) < number:
        replicas.write("b")
    shown = [change.rv for change in found]
    assert shown in ([1], [1, 2])
    after = shown[-1] if found else newest
    assert shown + [change.rv for change in replicas.one.changes_since("instance", after)] == [1, 2]


def test_the_floor_of_the_journal_never_decreases(replicas: Replicas) -> None:
    """Replicas forget at moments of their own, and one may have looked before another was done."""
    replicas.write("a")
    replicas.clock.at += 1000.0
    replicas.write("b")
    replicas.clock.at += 1000.0
    replicas.write("c")
    with before_statement(replicas, 2, lambda: replicas.other.compact(keep_s=500.0)):
        replicas.one.compact(keep_s=1500.0)
    assert [numbers_of(replicas, since) for since in (0, 1, 2)] == [None, None, [3]]
