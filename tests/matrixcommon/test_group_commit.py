"""Verbs that wait at the same moment are one commit; each is informed what became of it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest
from sqlalchemy import String, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from matrixcommon.api.mutations import Mutations
from matrixcommon.model.errors import Conflict, PreconditionFailed
from matrixcommon.model.resource_model import ResourceView
from matrixcommon.persistence.database_session import CachedTable, Database, ResourceRow, journal_tables
from matrixcommon.persistence.group_commit import GROUP_SIZE_MAX, CommitQueue
from services.chassis.database import DatabaseEngine
from tests.clocks import FixedClock

ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="")


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class Thing(ResourceRow, Base):
    __tablename__ = "things"
    kind = "thing"
    by: Mapped[str] = mapped_column(String(20))

    def view(self) -> ResourceView:
        return ResourceView(**self.common_fields())


class Things:
    """A service with one table, kept in memory or not."""

    def __init__(self, database: DatabaseEngine, keeps: bool, shared: bool = False) -> None:
        Base.metadata.create_all(database.engine)
        self.database = database
        self.records = Database(database.sessions, Base.metadata, FixedClock(), shared)
        if keeps:
            self.records.cache_tables(CachedTable(Thing, by=("by",)))
        self.groups = CommitQueue(self.records)
        self.commits: list[int] = []
        self.records.after_commit.append(self.commits.append)

    def put(self, name: str) -> str:
        with self.records.transaction() as session:
            if name.startswith("no"):
                raise Conflict(name)
            thing = session.get(Thing, name)
            if thing is None:
                session.add(Thing(name=name, by=ASKED_BY.get()))
            else:
                thing.generation += 1
        return name

    def names(self) -> list[str]:
        with self.records.reading() as session:
            return sorted(row.name for row in session.query(Thing))


@pytest.fixture(params=[True, False], ids=["kept", "not kept"])
def things(request, tmp_path) -> Things:
    return Things(DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}"), request.param)


async def submit(things: Things, name: str) -> str:
    ASKED_BY.set(f"by {name}")
    return await things.groups.run(lambda: things.put(name))


async def test_concurrent_verbs_share_one_commit(things):
    asked = [f"t{number:02d}" for number in range(20)]
    assert await asyncio.gather(*(submit(things, name) for name in asked)) == asked
    assert things.names() == asked
    assert things.commits == [20]
    with things.records.reading() as session:
        assert {row.by for row in session.query(Thing)} == {f"by {name}" for name in asked}


async def test_a_single_verb_is_committed_at_once(things):
    assert await submit(things, "alone") == "alone"
    assert things.commits == [1]


async def test_group_size_is_bounded(things):
    await asyncio.gather(*(submit(things, f"t{number}") for number in range(GROUP_SIZE_MAX + 10)))
    assert things.commits == [GROUP_SIZE_MAX, GROUP_SIZE_MAX + 10]


async def test_a_refusal_is_raised_only_to_its_caller(things):
    answers = await asyncio.gather(*(submit(things, name) for name in ("a", "no", "b")), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["a", "no", "b"]
    assert things.names() == ["a", "b"]
    assert things.commits == [2]


async def test_cancelled_callers_are_skipped(things):
    waiting = [asyncio.ensure_future(submit(things, name)) for name in ("a", "b")]
    asyncio.get_running_loop().call_soon(waiting[0].cancel)
    await asyncio.wait(waiting)
    assert waiting[0].cancelled()
    assert waiting[1].result() == "b"
    assert things.names() == ["b"]


async def test_a_failed_commit_is_raised_to_all_and_changes_nothing(things):
    def fail(*_: object) -> None:
        raise OperationalError("COMMIT", None, Exception("disk full"))

    await submit(things, "before")
    event.listen(things.database.engine, "commit", fail)
    answers = await asyncio.gather(*(submit(things, name) for name in ("a", "b", "no")), return_exceptions=True)
    event.remove(things.database.engine, "commit", fail)
    assert [type(answer) for answer in answers] == [OperationalError] * 3
    assert things.names() == ["before"]
    assert await asyncio.gather(*(submit(things, name) for name in ("a", "before"))) == ["a", "before"]
    assert things.names() == ["a", "before"]
    assert [change.rv for change in things.records.changes_since("thing", 0)] == [1, 2, 3]


async def test_another_replicas_write_invalidates_the_cache(things):
    other = Things(things.database, things.records._cached_tables != {})
    await submit(things, "a")
    await submit(other, "a")
    await submit(things, "a")
    with things.records.reading() as session:
        assert session.get(Thing, "a").generation == 3


async def test_a_change_reverted_after_a_flush_is_reverted_in_the_database(things):
    await submit(things, "a")
    with things.records.transaction() as session:
        thing = session.get(Thing, "a")
        thing.state = "Halfway"
        session.flush()
        thing.state = ""
    with things.records.reading() as session:
        assert session.get(Thing, "a").state == ""


async def test_only_rolled_back_verbs_are_undone_in_memory(things):
    """Of a refused verb what it remembered, at once; of a group whose commit fails all of it, the last first."""
    reported: list[str] = []

    def verb(name: str) -> None:
        with things.records.transaction() as session:
            things.records.on_rollback(lambda: reported.append(f"undo {name}"))
            things.records.on_commit(lambda: reported.append(f"reported {name}"))
            if name == "no":
                raise Conflict(name)
            session.add(Thing(name=name, by=""))

    def fail(*_: object) -> None:
        raise OperationalError("COMMIT", None, Exception("disk full"))

    ended: list[bool] = []
    things.records.after_transaction.append(ended.append)
    groups = things.groups
    verbs = [groups.run(lambda name=name: verb(name)) for name in ("a", "no", "b")]
    await asyncio.gather(*verbs, return_exceptions=True)
    assert reported == ["undo no", "reported a", "reported b"]
    assert ended == [True]
    reported.clear()
    event.listen(things.database.engine, "commit", fail)
    verbs = [groups.run(lambda name=name: verb(name)) for name in ("c", "no", "d")]
    await asyncio.gather(*verbs, return_exceptions=True)
    event.remove(things.database.engine, "commit", fail)
    assert reported == ["undo no", "undo d", "undo c"]
    assert ended == [True, False]


@pytest.mark.parametrize("keeps", [True, False])
async def test_if_match_holds_until_the_verb_is_decided(tmp_path, keeps):
    one, other = (Things(DatabaseEngine(f"sqlite:///{tmp_path / 'things.db'}"), keeps, shared=True) for _ in range(2))
    one.put("t")
    with one.records.reading() as session:
        named = session.get_one(Thing, "t").etag
    mutations, decided_on = Mutations(one.records), list[str]()

    def verb() -> None:
        with one.records.transaction() as session:
            thing = session.get(Thing, "t")
            decided_on.append(thing.etag)
            thing.generation += 1

    one.records.after_transaction.append(lambda _: other.put("t"))  # the other replica, as soon as it can
    await mutations.run(verb, row=(Thing, "t"), if_match=named)
    assert decided_on == [named]
    with pytest.raises(PreconditionFailed):
        await mutations.run(verb, row=(Thing, "t"), if_match=named)
    assert decided_on == [named], "another one has changed it since"
