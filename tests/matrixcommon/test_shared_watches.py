"""Many watches of one thing cost its writers little: a change is read, parsed and rendered once, sent in turns, and a
reader that is slow delays nobody and loses nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as database_event
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase

from matrixcommon.api import derived_watch, watch_stream
from matrixcommon.api.authorization import VIEWERS, Caller, Principal, Rule, Scope
from matrixcommon.api.client import EventReader, WatchEvent
from matrixcommon.api.derived_watch import derived_changes
from matrixcommon.api.list_params import ListParams, ListQuery, list_params
from matrixcommon.api.watch_stream import changes_of_kind
from matrixcommon.model.resource_model import ResourceView
from matrixcommon.persistence.change_feed import KEPT_CHANGES_MAX, PAUSE_WALL_S, TURN_SIZE, ChangeFeed, WatchQueue
from matrixcommon.persistence.database_session import Database, ResourceRow, journal_tables
from services.chassis.database import DatabaseEngine
from services.testing.clocks import LoopClock

pytestmark = pytest.mark.looptime

WATCHES = 3 * TURN_SIZE


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class LampView(ResourceView):
    holder: str = ""


class Lamp(ResourceRow, Base):
    __tablename__ = "lamps"
    kind = "lamp"

    def view(self) -> ResourceView:
        return LampView(**self.common_fields(), holder=f"{self.project}/somebody")


class Fan(ResourceRow, Base):
    """Another kind in the same journal."""

    __tablename__ = "fans"
    kind = "fan"

    def view(self) -> ResourceView:
        return ResourceView(**self.common_fields())


class Lamps:
    """A service's only watched table, and how often its journal was read and its views were made."""

    def __init__(self, url: str, shared: bool = False) -> None:
        database = DatabaseEngine(url)
        Base.metadata.create_all(database.engine)
        self.records = Database(database.sessions, Base.metadata, LoopClock(0.0), shared=shared)
        self.lists = self.journal_reads = 0
        database_event.listen(database.engine, "before_cursor_execute", self._count)

    def _count(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        self.journal_reads += "FROM changes" in statement

    def switch(self, name: str, state: str, project: str = "default") -> int:
        with self.records.transaction() as session:
            lamp = session.get(Lamp, name) or Lamp(name=name, project=project)
            lamp.state = state
            session.add(lamp)
        return self.records.latest()

    def add_fan(self, name: str) -> None:
        with self.records.transaction() as session:
            session.add(Fan(name=name))

    def views(self) -> list[ResourceView]:
        self.lists += 1
        with self.records.reading() as session:
            return [lamp.view() for lamp in session.scalars(select(Lamp).order_by(Lamp.name))]

    def watch(self, params: ListParams) -> AsyncIterator[bytes]:
        return changes_of_kind(params, self.records, "lamp", self.views)

    def watch_derived(self, params: ListParams) -> AsyncIterator[bytes]:
        return derived_changes(params, self.records, self.views)


@pytest.fixture
def lamps(tmp_path: Path) -> Lamps:
    return Lamps(f"sqlite:///{tmp_path / 'lamps.db'}")


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often each event was rendered, by its type and number."""
    counted: Counter[tuple[str, int]] = Counter()
    render = watch_stream.event

    def event(type: str, rv: int, body: str) -> bytes:
        counted[type, rv] += 1
        return render(type, rv, body)

    monkeypatch.setattr(watch_stream, "event", event)
    monkeypatch.setattr(derived_watch, "event", event)
    return counted


def params(since: int | None = None, text: str | None = None, caller: Caller | None = None) -> ListParams:
    query = ListQuery(watch=True, resourceVersion=since, filter=text)
    sent = query.model_dump(mode="json", exclude_none=True, by_alias=True)
    return list_params(query, caller, "/v1/lamps", [(name, str(value)) for name, value in sent.items()])


def viewer(project: str) -> Caller:
    return Caller(Principal("eve", project, "viewer"), Rule(
        "GET", "/v1/lamps", "lamps", VIEWERS, Scope.PHYSICAL, mutates=False, holders=("holder",)
    ))  # fmt: skip


async def events(stream: AsyncIterator[bytes], count: int) -> list[WatchEvent]:
    """The next events that are not bookmarks."""
    lines, seen = EventReader(), list[WatchEvent]()
    async with asyncio.timeout(120):
        while len(seen) < count:
            for line in (await anext(stream)).decode().split("\n"):
                event = lines.take(line)
                if event is not None and event.type != "BOOKMARK":
                    seen.append(event)
    return seen


@asynccontextmanager
async def watching(*streams: AsyncIterator[bytes]) -> AsyncIterator[list[asyncio.Task[list[WatchEvent]]]]:
    """Each has been sent its first bookmark and waits for one event."""
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(aclosing(stream))
            await anext(stream)
        tasks = [asyncio.create_task(events(stream, 1)) for stream in streams]
        await asyncio.sleep(1.0)
        yield tasks
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("text", [None, "state=On"])
async def test_a_change_is_read_and_rendered_once_for_all_watches(
    lamps: Lamps, rendered: Any, text: str | None
) -> None:
    async with watching(*(lamps.watch(params(0, text)) for _ in range(WATCHES))) as readers:
        lamps.journal_reads = 0
        rv = lamps.switch("a", "On")
        seen = [each[0] for each in await asyncio.gather(*readers)]
    assert {(each.type, each.rv, each.view["state"]) for each in seen} == {("ADDED", rv, "On")}
    assert (lamps.journal_reads, rendered["ADDED", rv]) == (1, 1)


async def test_derived_views_are_made_and_rendered_once_for_all_watches(lamps: Lamps, rendered: Any) -> None:
    lamps.switch("a", "Off")
    streams = [lamps.watch_derived(params(1)) for _ in range(WATCHES)]
    async with watching(*streams) as readers:
        lamps.lists = 0
        rv = lamps.switch("a", "On")
        seen = [each[0] for each in await asyncio.gather(*readers)]
    assert {(each.type, each.rv, each.view["state"]) for each in seen} == {("MODIFIED", rv, "On")}
    assert (lamps.lists, rendered["MODIFIED", rv]) == (1, 1)


@pytest.mark.parametrize("derived", [False, True])
async def test_what_is_shared_is_shared_only_among_those_who_see_the_same(lamps: Lamps, derived: bool) -> None:
    watch = lamps.watch_derived if derived else lamps.watch
    callers = [viewer("red"), viewer("blue"), viewer("*"), viewer("red")]
    async with watching(*(watch(params(0, None, caller)) for caller in callers)) as readers:
        lamps.switch("a", "On", project="red")
        seen = [(await reader)[0].view["holder"] for reader in readers]
    assert seen == ["red/somebody", "(another project's)", "red/somebody", "red/somebody"]


async def test_requests_between_the_turns_do_not_wait_for_all_watches(lamps: Lamps) -> None:
    async with watching(*(lamps.watch(params(0)) for _ in range(WATCHES))) as readers:
        lamps.switch("a", "On")
        done = [0]
        while done[-1] < WATCHES:
            await asyncio.sleep(PAUSE_WALL_S)
            done.append(sum(reader.done() for reader in readers))
    assert max(now - before for before, now in pairwise(done)) <= TURN_SIZE


async def test_changes_between_two_turns_are_sent_together(lamps: Lamps) -> None:
    async with aclosing(lamps.watch(params(0))) as stream:
        await anext(stream)
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        lamps.switch("a", "On")
        await reading
        for name in "bcd":
            lamps.switch(name, "On")
        assert (await anext(stream)).count(b"event: ADDED") == 3


@pytest.mark.parametrize("text", [None, "state!=Broken"])
async def test_a_reader_that_stands_still_delays_nobody_and_misses_nothing(lamps: Lamps, text: str | None) -> None:
    count = 2 * KEPT_CHANGES_MAX
    async with aclosing(lamps.watch(params(0, text))) as stands, aclosing(lamps.watch(params(0, text))) as reads:
        await anext(stands), await anext(reads)
        for at in range(count):
            rv = lamps.switch("a", str(at))
            assert [each.rv for each in await events(reads, 1)] == [rv]
        assert [each.view["state"] for each in await events(stands, count)] == [str(at) for at in range(count)]


async def test_what_watches_share_ends_with_the_last_of_them(lamps: Lamps) -> None:
    async with watching(lamps.watch(params(0)), lamps.watch_derived(params(0))) as readers:
        assert len(lamps.records._watched) == 2
        lamps.switch("a", "On")
        await asyncio.gather(*readers)
    assert len(lamps.records._watched) == 0


async def test_a_silent_watch_gets_bookmarks_and_the_number_it_may_resume_at(lamps: Lamps) -> None:
    async with aclosing(lamps.watch(params(0))) as stream:
        await anext(stream)
        started = asyncio.get_running_loop().time()
        assert (await anext(stream)).startswith(b"event: BOOKMARK")
        assert asyncio.get_running_loop().time() - started == pytest.approx(
            watch_stream.BOOKMARK_PERIOD_WALL_S, abs=0.1
        )


async def test_another_replicas_changes_are_looked_for_once_for_all_watches(tmp_path: Path) -> None:
    ours, theirs = (Lamps(f"sqlite:///{tmp_path / 'lamps.db'}", shared=True) for _ in range(2))
    theirs.switch("a", "Off")
    async with watching(*(ours.watch(params(1)) for _ in range(WATCHES))) as readers:
        ours.journal_reads = 0
        rv = theirs.switch("a", "On")
        assert [(await reader)[0].rv for reader in readers] == [rv] * WATCHES
    assert ours.journal_reads == 1


async def test_watches_are_released_if_the_database_cannot_be_asked(lamps: Lamps) -> None:
    """Each finds out by itself, and says so to its reader."""

    class Unanswering:
        clock, poll_period_wall_s = lamps.records.clock, 0.25
        asked = 0

        def may_have_changed(self, kind: str | None, since: int) -> bool:
            self.asked += 1
            if self.asked > 1:
                raise OSError("no answer")
            return False

        def read_changes(self, kind: str, rv: int, limit: int) -> Any:
            raise AssertionError(json.dumps([kind, rv, limit]))

    async with asyncio.timeout(1.0):
        await WatchQueue(Unanswering(), "lamp").changed(0, within_s=60.0)


async def test_a_silent_watch_reads_once_for_each_bookmark(lamps: Lamps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at moments at which the rest of the period rounds to nothing, where a virtual clock would stand still."""
    watches, bookmarks = 20, 30
    reads, read = 0, ChangeFeed.read

    def counted(feed: ChangeFeed, rv: int) -> Any:
        nonlocal reads
        reads += 1
        assert reads <= watches * (bookmarks + 1), "it reads without waiting"
        return read(feed, rv)

    monkeypatch.setattr(ChangeFeed, "read", counted)
    for number in range(watches):
        await asyncio.sleep(1 / (3 + number))
        async with aclosing(lamps.watch(params())) as events:
            for _ in range(bookmarks + 1):
                assert b"BOOKMARK" in await anext(events)


async def test_a_watch_of_what_seldom_changes_keeps_up_with_the_journal(lamps: Lamps) -> None:
    """It has to be told of the next change, although the journal no longer has what was there when it last read one."""
    async with watching(lamps.watch(params())) as (reader,):
        for number in range(3):
            lamps.add_fan(f"fan{number}")
            await asyncio.sleep(2 * watch_stream.BOOKMARK_PERIOD_WALL_S)
            assert lamps.records.compact(1.0) == 1
        rv = lamps.switch("hall", "On")
        assert [each.rv for each in await reader] == [rv]


async def test_a_watch_that_the_journal_left_behind_is_told_to_start_anew(lamps: Lamps) -> None:
    async with aclosing(lamps.watch(params())) as stream:
        assert b"BOOKMARK" in await anext(stream)
        piece = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1.0)
        lamps.add_fan("fan")
        await asyncio.sleep(2.0)
        assert lamps.records.compact(1.0) == 1
        lamps.switch("hall", "On")
        async with asyncio.timeout(5.0):
            assert b"Gone" in await piece
