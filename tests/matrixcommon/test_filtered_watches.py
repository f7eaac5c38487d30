"""A filtered watch: what its reader has is what a list shows, because it is told of what enters and what leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase

from matrixcommon.api.authorization import VIEWERS, Caller, Principal, Rule, Scope
from matrixcommon.api.client import EventReader, WatchEvent
from matrixcommon.api.filters import parse_filter
from matrixcommon.api.list_params import ListParams
from matrixcommon.api.watch_selection import Selection
from matrixcommon.api.watch_stream import changes_of_kind
from matrixcommon.model.resource_model import ResourceView
from matrixcommon.persistence.change_log import Change
from matrixcommon.persistence.database_session import Database, ResourceRow, journal_tables
from services.chassis.database import DatabaseEngine
from services.testing.clocks import LoopClock
from tests.clocks import virtual_loop

pytestmark = pytest.mark.looptime


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)


class Lamp(ResourceRow, Base):
    __tablename__ = "lamps"
    kind = "lamp"

    def view(self) -> ResourceView:
        return ResourceView(**self.common_fields())


def params(resource_version: int | None = None, text: str = "state=On") -> ListParams:
    return ListParams(500, None, parse_filter(text), None, True, resource_version)


class Lamps:
    """A service's only table, its list and its watches."""

    def __init__(self, folder: Path) -> None:
        database = DatabaseEngine(f"sqlite:///{folder / 'lamps.db'}")
        Base.metadata.create_all(database.engine)
        self.records = Database(database.sessions, Base.metadata, LoopClock(0.0))

    def switch(self, name: str, state: str | None) -> None:
        """None: it is taken away."""
        with self.records.transaction() as session:
            lamp = session.get(Lamp, name)
            if state is None:
                if lamp is not None:
                    session.delete(lamp)
            elif lamp is None:
                session.add(Lamp(name=name, state=state))
            else:
                lamp.state = state

    def views(self) -> list[ResourceView]:
        with self.records.reading() as session:
            return [lamp.view() for lamp in session.scalars(select(Lamp).order_by(Lamp.name))]

    def listed(self) -> dict[str, str]:
        """The etag of each that is on."""
        return {view.name: view.etag for view in self.views() if view.state == "On"}


class WatchClient:
    """What one who watches has; beside the events, whether each of them made sense to it."""

    def __init__(self, lamps: Lamps, has: dict[str, str] | None = None, since: int | None = None) -> None:
        self._lamps = lamps
        self.has, self.events, self.senseless = dict(has or {}), list[tuple[str, str]](), list[WatchEvent]()
        self._resumed_at = 0 if since is None else lamps.records.latest()
        self._stream: AsyncIterator[bytes] = changes_of_kind(params(since), lamps.records, "lamp", lamps.views)

    async def catch_up(self) -> None:
        """As far as a bookmark of the newest change."""
        lines = EventReader()
        async with asyncio.timeout(120):
            async for piece in self._stream:
                for line in piece.decode().split("\n"):
                    if (event := lines.take(line)) is None:
                        continue
                    if event.type != "BOOKMARK":
                        self._take(event)
                    elif event.rv >= self._lamps.records.latest():
                        return

    def _take(self, event: WatchEvent) -> None:
        name = event.view["name"]
        self.events.append((event.type, name))
        if event.rv > self._resumed_at and (event.type == "ADDED") == (name in self.has):
            self.senseless.append(event)
        if event.type == "DELETED":
            self.has.pop(name, None)
        else:
            self.has[name] = event.view["etag"]


async def test_resources_enter_and_leave_the_selection_with_the_filter(tmp_path: Path) -> None:
    lamps = Lamps(tmp_path)
    for name, state in (("a", "On"), ("b", "Off")):
        lamps.switch(name, state)
    reader = WatchClient(lamps)
    await reader.catch_up()
    for name, state in (("a", "Off"), ("a", "Broken"), ("b", "On"), ("b", None), ("a", None), ("c", "Off")):
        lamps.switch(name, state)
    await reader.catch_up()
    assert reader.events == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b"), ("DELETED", "b")]


async def test_a_resumed_watch_reports_what_left_meanwhile_and_later(tmp_path: Path) -> None:
    lamps = Lamps(tmp_path)
    for name in ("a", "b", "c"):
        lamps.switch(name, "On")
    lamps.switch("d", "Off")
    since, had = lamps.records.latest(), lamps.listed()
    lamps.switch("a", "Off")
    reader = WatchClient(lamps, had, since)
    await reader.catch_up()
    assert reader.events == [("DELETED", "a")]
    for name, state in (("b", "Off"), ("d", "Broken"), ("a", "On")):
        lamps.switch(name, state)
    await reader.catch_up()
    assert reader.events[1:] == [("DELETED", "b"), ("ADDED", "a")], "of d it never heard"


NAMES, STATES = st.sampled_from("abc"), st.sampled_from(["On", "Off", "Broken", None])
SWITCHES = st.lists(st.tuples(NAMES, STATES), max_size=6)


@settings(deadline=None, max_examples=60)
@given(before=SWITCHES, away=SWITCHES, later=SWITCHES, resumes=st.booleans(), forgets=st.booleans())
def test_a_watch_client_has_what_a_list_shows(tmp_path_factory, before, away, later, resumes, forgets) -> None:
    """It reads `before` away, and then what comes later; older changes may have been forgotten by then."""
    lamps = Lamps(tmp_path_factory.mktemp("lamps"))

    def switch(switched: Iterable[tuple[str, Any]]) -> None:
        for name, state in switched:
            lamps.switch(name, state)

    async def read() -> None:
        switch(before)
        since, had = lamps.records.latest(), lamps.listed()
        if forgets:
            lamps.records.compact(keep_s=-1.0)
        switch(away)
        reader = WatchClient(lamps, had, since) if resumes else WatchClient(lamps)
        await reader.catch_up()
        assert reader.has == lamps.listed()
        switch(later)
        await reader.catch_up()
        assert reader.has == lamps.listed()
        assert reader.senseless == []

    loop = virtual_loop()
    try:
        loop.run_until_complete(read())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def selection_for(project: str) -> Selection:
    """Of what two projects share and is Up, for a viewer of one of them."""
    rule = Rule("GET", "/v1/things", "things", VIEWERS, Scope.SHARED, mutates=False)
    caller = Caller(Principal("eve", project, "viewer"), rule)
    return Selection(ListParams(500, None, parse_filter("state=Up"), None, True, None, caller=caller))


def test_a_watch_shows_only_the_name_of_a_resource_that_became_invisible() -> None:
    selection = selection_for("red")

    def shown(rv: int, projects: list[str], name: str = "a") -> Any:
        body = {"name": name, "project": "blue", "state": "Up", "projects": projects, "message": f"as of {rv}"}
        return selection.event_for(Change(rv, "thing", f"blue/{name}", "MODIFIED", json.dumps(body)))

    assert shown(1, ["blue", "red"])[0] == "ADDED"
    assert shown(2, ["blue", "green"]) == ("DELETED", {"project": "blue", "name": "a"})
    assert shown(3, ["blue", "green"]) is None
    assert shown(4, ["blue", "green"], "never seen") is None
    selection = selection_for("red")
    selection.resume(0, [], lambda: 10)
    assert shown(5, ["blue", "green"]) is None, "it may never have been seen"
