"""The journal: what a transaction changed is written down with it, once, in order, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import String, event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixcommon.model.errors import Gone, PreconditionFailed
from matrixcommon.model.resource_model import ResourceView
from matrixcommon.persistence.database_session import (
    POLL_PERIOD_WALL_S,
    Database,
    ResourceRow,
    check_etag,
    journal_tables,
)
from matrixcommon.persistence.table_cache import CachingSession
from services.chassis.database import DatabaseEngine, database_unavailable_reason
from tests.clocks import FixedClock


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class Thing(ResourceRow, Base):
    __tablename__ = "things"
    kind = "thing"
    colour: Mapped[str] = mapped_column(String(20))

    def view(self) -> ResourceView:
        return ResourceView(**self.common_fields())


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def records(tmp_path, clock) -> Database:
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}")
    Base.metadata.create_all(database.engine)
    return Database(database.sessions, Base.metadata, clock)


def put(records: Database, name: str, colour: str) -> Thing:
    with records.transaction() as session:
        thing = session.get(Thing, name)
        if thing is None:
            thing = Thing(name=name, colour=colour)
            session.add(thing)
        thing.colour = colour
    return thing


def test_changes_are_journalled_in_order_with_the_view_at_that_change(records):
    put(records, "a", "red")
    put(records, "b", "red")
    put(records, "a", "blue")
    with records.transaction() as session:
        session.delete(session.get(Thing, "b"))
    changes = records.changes_since("thing", 0)
    assert [(c.type, c.name) for c in changes] == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert [c.rv for c in changes] == sorted({c.rv for c in changes})
    assert [json.loads(c.body)["etag"] for c in changes] == [f'"{c.rv}"' for c in changes[:3]] + ['"4"']


class Gadget(ResourceRow, Base):
    __tablename__ = "gadgets"
    kind = "gadget"

    def view(self) -> ResourceView:
        return ResourceView(**self.common_fields())


@settings(deadline=None, max_examples=15)
@given(
    kinds=st.lists(st.sampled_from([(Thing,), (Gadget,), (Thing, Gadget), ()]), max_size=5), others=st.integers(0, 3)
)
def test_own_changes_agree_with_the_journal(kinds, others):
    """`others` commits were made by a process before this one."""
    with tempfile.TemporaryDirectory() as folder:
        database = DatabaseEngine(f"sqlite:///{folder}/things.db")
        Base.metadata.create_all(database.engine)
        earlier, records = (Database(database.sessions, Base.metadata, FixedClock()) for _ in range(2))
        for number in range(others):
            put(earlier, f"earlier-{number}", "red")
        for number, added in enumerate(kinds):
            with records.transaction() as session:
                for kind in added:
                    session.add(kind(name=str(number), **({"colour": "red"} if kind is Thing else {})))
            for kind in ("thing", "gadget"):
                for rv in range(records.latest() + 1):
                    changes, newest = records.read_changes(kind, rv)
                    assert (changes, newest) == records._journal.since(kind, rv, 500)


def test_waiting_for_an_unchanged_kind_sends_no_statement(records):
    put(records, "a", "red")
    asked = []
    event.listen(records._sessions.kw["bind"], "before_cursor_execute", lambda *a: asked.append(a[2]))
    assert records.read_changes("gadget", 0) == ([], 1)
    assert records.read_changes("thing", 1) == ([], 1)
    assert asked == []
    assert len(records.read_changes("thing", 0)[0]) == 1
    assert asked


def test_a_process_without_writes_queries_the_journal_once(records, tmp_path, clock):
    put(records, "a", "red")
    after = Database(DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}").sessions, Base.metadata, clock)
    asked = []
    assert after.read_changes("gadget", 1) == ([], 1)
    event.listen(after._sessions.kw["bind"], "before_cursor_execute", lambda *a: asked.append(a[2]))
    assert after.read_changes("thing", 1) == after.read_changes("gadget", 1) == ([], 1)
    assert asked == []
    put(after, "b", "red")
    assert [change.name for change in after.read_changes("thing", 1)[0]] == ["b"]
    assert len(after.read_changes("thing", 0)[0]) == 2


def record_statements(records: Database) -> list[str]:
    """What is asked of the database from now on."""
    asked: list[str] = []
    event.listen(records._sessions.kw["bind"], "before_cursor_execute", lambda *a: asked.append(a[2]))
    return asked


def query_red_things(session):
    return [thing.name for thing in session.scalars(select(Thing).where(Thing.colour == "red").order_by(Thing.name))]


def test_an_empty_result_is_not_queried_again_before_a_row_of_the_kind_changes(records):
    put(records, "a", "blue")
    assert records.query_unless_known_empty(Thing, query_red_things) == []
    asked = record_statements(records)
    assert records.query_unless_known_empty(Thing, query_red_things) == []
    with records.transaction() as session:
        session.add(Gadget(name="g"))
    before = len(asked)
    assert records.query_unless_known_empty(Thing, query_red_things) == []
    assert len(asked) == before, "a gadget is no thing"
    put(records, "a", "red")
    assert records.query_unless_known_empty(Thing, query_red_things) == ["a"]
    assert records.query_unless_known_empty(Thing, query_red_things) == ["a"], "what was found is looked at each time"
    put(records, "a", "blue")
    assert records.query_unless_known_empty(Thing, query_red_things) == []


def test_a_query_result_is_cached_until_a_row_of_the_kind_changes(records):
    put(records, "a", "red")
    assert records.cached_query(Thing, "reds", query_red_things) == ["a"]
    asked = record_statements(records)
    assert records.cached_query(Thing, "reds", query_red_things) == ["a"]
    assert asked == []
    with records.transaction() as session:
        session.add(Gadget(name="g"))
    before = len(asked)
    assert records.cached_query(Thing, "reds", query_red_things) == ["a"]
    assert len(asked) == before, "a gadget is no thing"
    put(records, "b", "red")
    assert records.cached_query(Thing, "reds", query_red_things) == ["a", "b"]
    assert records.cached_query(Thing, "none", lambda session: None) is None


def test_the_least_recently_used_result_is_evicted_first(records, monkeypatch):
    monkeypatch.setattr("matrixcommon.persistence.database_session.CACHED_RESULTS_MAX", 2)
    put(records, "a", "red")
    for name in ("b", "c", "d"):
        assert records.cached_query(Thing, "reds", query_red_things) == ["a"]
        assert records.cached_query(Thing, name, lambda session, name=name: session.get(Thing, name)) is None
    asked = record_statements(records)
    assert records.cached_query(Thing, "reds", query_red_things) == ["a"]
    assert asked == []
    assert records.cached_query(Thing, "c", lambda session: session.get(Thing, "c")) is None
    assert len(asked) == 1


def test_a_row_found_by_key_is_the_session_s_own(records):
    put(records, "a", "red")
    with records.transaction() as session:
        thing = session.get(Thing, "a")
        thing.colour = "blue"
        session.add(Thing(name="b", colour="green"))
        assert session.get(Thing, "a") is thing
        assert session.get(Thing, "b").colour == "green", "what is not written yet is written before it is asked"
        session.delete(thing)
        session.flush()
        assert session.get(Thing, "a") is None
    with records.reading() as session:
        assert (session.get(Thing, "a"), session.get(Thing, "b").colour) == (None, "green")


def test_database_errors_under_the_lock_are_sqlalchemy_errors(records):
    with records.reading() as session:
        session.connection().exec_driver_sql("DROP TABLE journal_head")
        session.commit()
    with pytest.raises(OperationalError, match="journal_head") as refused:
        put(records, "a", "red")
    assert database_unavailable_reason(refused.value)


def test_long_results_are_not_cached(records, monkeypatch):
    monkeypatch.setattr("matrixcommon.persistence.database_session.CACHED_RESULT_LENGTH_MAX", 1)
    put(records, "a", "red")
    put(records, "b", "red")
    asked = record_statements(records)
    assert (
        records.cached_query(Thing, "reds", query_red_things)
        == records.cached_query(Thing, "reds", query_red_things)
        == ["a", "b"]
    )
    assert len(asked) == 2


def test_a_rolled_back_change_does_not_affect_the_journal(records):
    put(records, "a", "blue")
    assert records.query_unless_known_empty(Thing, query_red_things) == []

    def fail():
        with records.transaction() as session:
            session.get(Thing, "a").colour = "red"
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert records.query_unless_known_empty(Thing, query_red_things) == []
    assert records.latest() == 1


def test_with_other_writers_an_empty_result_is_not_queried_again_before_any_change(tmp_path, records, clock):
    others = Database(DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}").sessions, Base.metadata, clock, shared=True)

    def answers():
        return others.query_unless_known_empty(Thing, query_red_things), others.cached_query(
            Thing, "reds", query_red_things
        )

    assert (answers(), others.latest()) == (([], []), 0)
    asked = record_statements(others)
    assert answers() == ([], [])
    assert asked == []
    put(records, "a", "blue")
    assert answers() == ([], [])
    assert len(asked) == 2, "of what others write only the number is known"
    put(records, "a", "red")
    assert (answers(), others.latest()) == ((["a"], ["a"]), 2)


def test_the_newest_change_is_known_without_a_query_if_nobody_else_writes(records):
    put(records, "a", "red")
    asked = record_statements(records)
    assert records.latest() == 1
    assert asked == []
    put(records, "b", "red")
    asked.clear()
    assert records.latest() == 2
    assert asked == []


def test_a_commit_with_unknown_outcome_is_read_back_from_the_journal(records, monkeypatch):
    """It did: the numbers go on after it."""
    put(records, "a", "red")
    with monkeypatch.context() as patched:
        commit = CachingSession.commit

        def lost(session):
            commit(session)
            raise OperationalError("COMMIT", None, Exception("the connection was lost"))

        patched.setattr(CachingSession, "commit", lost)
        with pytest.raises(OperationalError):
            put(records, "b", "red")
    assert records.latest() == 2
    put(records, "c", "red")
    assert [change.name for change in records.changes_since("thing", 0)] == ["a", "b", "c"]


async def test_the_database_is_not_polled_if_nobody_else_writes(records):
    asked = []
    event.listen(records._sessions.kw["bind"], "before_cursor_execute", lambda *a: asked.append(a[2]))
    await records.changed(within_wall_s=0.01, since=0)
    assert asked == []


def test_a_write_without_a_difference_is_not_journalled(records):
    before = put(records, "a", "red").version
    assert put(records, "a", "red").version == before
    assert len(records.changes_since("thing", 0)) == 1


def test_refused_and_dry_run_transactions_leave_no_trace(records):
    def refused() -> None:
        with records.transaction() as session:
            session.add(Thing(name="a", colour="red"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        refused()
    with records.transaction(dry=True) as session:
        session.add(Thing(name="b", colour="red"))
    assert records.changes_since("thing", 0) == []
    assert records.latest() == 0


def test_numbers_continue_after_restart_and_compaction(records, clock):
    put(records, "a", "red")
    clock.at += 1000
    put(records, "a", "blue")
    assert records.compact(keep_s=500) == 1
    assert [c.rv for c in records.changes_since("thing", 1)] == [2]
    with pytest.raises(Gone):
        records.changes_since("thing", 0)
    again = Database(records._sessions, Base.metadata, clock)
    assert put(again, "a", "green").version == 3


@pytest.mark.parametrize(
    ("if_match", "accepted"),
    [(None, True), ('"1"', True), ("1", True), ('"0", "1"', True), ("*", True), ('W/"1"', True), ('"2"', False)],
)
def test_if_match_accepts_the_named_version(records, if_match, accepted):
    thing = put(records, "a", "red")
    if accepted:
        check_etag(thing, if_match)
    else:
        with pytest.raises(PreconditionFailed):
            check_etag(thing, if_match)


def test_if_match_never_accepts_an_absent_resource():
    with pytest.raises(PreconditionFailed):
        check_etag(None, "*")


@pytest.mark.looptime
async def test_a_watch_notices_another_replicas_commit_within_a_poll_period(tmp_path, records, clock):
    """Not only at its next bookmark: whoever waits looks at the journal, and all who wait share one look."""
    replica = Database(
        DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}").sessions, Base.metadata, clock, shared=True
    )
    put(records, "a", "red")
    looks = 0

    def counted(newest=replica.latest) -> int:
        nonlocal looks
        looks += 1
        return newest()

    since, replica.latest = replica.latest(), counted
    waiting = [asyncio.create_task(replica.changed(within_wall_s=3600.0, since=since)) for _ in range(50)]
    loop = asyncio.get_running_loop()
    await asyncio.sleep(2.0)
    assert not any(task.done() for task in waiting)
    assert 0 < looks <= 2.0 / POLL_PERIOD_WALL_S
    put(records, "a", "blue")
    began = loop.time()
    await asyncio.gather(*waiting)
    assert loop.time() - began <= 2 * POLL_PERIOD_WALL_S


@pytest.mark.looptime
async def test_a_change_between_read_and_wait_ends_the_wait_at_once(tmp_path, records, clock):
    replica = Database(
        DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}").sessions, Base.metadata, clock, shared=True
    )
    since = replica.latest()
    put(records, "a", "red")
    began = asyncio.get_running_loop().time()
    await replica.changed(within_wall_s=3600.0, since=since)
    assert asyncio.get_running_loop().time() - began <= 2 * POLL_PERIOD_WALL_S


def test_a_version_ahead_of_the_journal_is_gone(records):
    put(records, "a", "red")
    assert records.changes_since("thing", 1) == []
    with pytest.raises(Gone, match="ahead"):
        records.changes_since("thing", 2)
