"""Watches of a database that two replicas write to, in any order of writes, watches that come, go, lag and resume, and
compaction: each is sent exactly the sequence of changes, or an error that its place is gone."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import looptime
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from matrixcommon.api.client import EventReader, WatchEvent
from matrixcommon.model.errors import Gone
from matrixcommon.model.resource_model import ResourceView
from matrixcommon.persistence.change_feed import PAGE_SIZE
from tests.matrixcommon.test_shared_watches import Lamp, Lamps, params

T = TypeVar("T")
REPLICAS = st.integers(0, 1)
NAMES = st.sampled_from("abc")
STATES = st.sampled_from(["On", "Off"])
SETTLED_S = 60.0
"""Longer than any watch needs to be sent what there is: a bookmark's period and many polls."""


@dataclass(frozen=True)
class Written:
    """One change as it was committed."""

    rv: int
    type: str
    name: str
    state: str


@dataclass
class Watch:
    """A reader, and what it knows. `present`: the lamps that it was sent; `at`: the number that it may resume at;
    `seen`: up to where it has been sent everything."""

    stream: AsyncIterator[bytes]
    text: str | None
    at: int
    present: dict[str, str]
    lines: EventReader = field(default_factory=EventReader)
    reading: asyncio.Future[bytes] | None = None
    gone: bool = False
    seen: int = 0
    exact: bool = True
    """Whether the service knows what the reader has: not of one that resumes with a filter, which may be sent more
    (decision 0968)."""

    def selects(self, state: str) -> bool:
        return self.text is None or self.text == f"state={state}"


def _lamps_after(log: Iterable[Written]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in log:
        found[each.name] = each.state
        if each.type == "DELETED":
            del found[each.name]
    return found


class WatchMachine(RuleBasedStateMachine):
    """Two replicas over one database, and their watches."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.loop = looptime.patch_event_loop(asyncio.new_event_loop())
        self.log: list[Written] = []
        self.floor = 0
        """The newest change that compaction has dropped."""
        self.watches: list[Watch] = []
        self.meanwhile: tuple[int, str, str] | None = None
        """What the other replica writes while the present state is being read."""

    @initialize()
    def start(self) -> None:
        url = f"sqlite:///{Path(self._folder.name) / 'lamps.db'}"
        self.replicas = [Interrupted(url, self) for _ in range(2)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self._end())
        self.loop.close()
        self._folder.cleanup()

    async def _end(self) -> None:
        await asyncio.sleep(SETTLED_S)
        for watch in self.watches:
            await self._drain(watch)
        for watch in self.watches:
            await self._stop(watch)

    # -- writes --------------------------------------------------------------------------------------------------------

    @property
    def lamps(self) -> dict[str, str]:
        """The lamps that there are, with their states."""
        return _lamps_after(self.log)

    def lamps_at(self, rv: int, watch: Watch) -> dict[str, str]:
        """The lamps of a watch as of a change."""
        lamps = _lamps_after(each for each in self.log if each.rv <= rv)
        return {name: state for name, state in lamps.items() if watch.selects(state)}

    @property
    def newest(self) -> int:
        return self.replicas[0].records.latest()

    def write(self, replica: int, name: str, state: str) -> None:
        type = "MODIFIED" if name in self.lamps else "ADDED"
        if self.lamps.get(name) != state:
            self.log.append(Written(self.replicas[replica].switch(name, state), type, name, state))

    @rule(replica=REPLICAS, name=NAMES, state=STATES)
    def switch(self, replica: int, name: str, state: str) -> None:
        async def work() -> None:
            self.write(replica, name, state)

        self.run(work())

    @rule(replica=REPLICAS, count=st.sampled_from([2, 20, PAGE_SIZE + 5]))
    def switch_often(self, replica: int, count: int) -> None:
        """More than is kept, and than is read at once."""

        async def work() -> None:
            for _ in range(count):
                self.write(replica, "a", "Off" if self.lamps.get("a") == "On" else "On")

        self.run(work())

    @rule(replica=REPLICAS, name=NAMES)
    def remove(self, replica: int, name: str) -> None:
        async def work() -> None:
            if (state := self.lamps.get(name)) is not None:
                with (records := self.replicas[replica].records).transaction() as session:
                    session.delete(session.get(Lamp, name))
                self.log.append(Written(records.latest(), "DELETED", name, state))

        self.run(work())

    @rule(replica=REPLICAS)
    def add_fan(self, replica: int) -> None:
        """Another kind, whose changes have numbers of the same journal."""

        async def work() -> None:
            self.replicas[replica].add_fan(f"fan{self.newest}")

        self.run(work())

    @rule(replica=REPLICAS, keep_s=st.sampled_from([0.0, 5.0, 50.0]))
    def compact(self, replica: int, keep_s: float) -> None:
        async def work() -> None:
            records = self.replicas[replica].records
            before = self.newest
            records.compact(keep_s)
            self.floor = max(self.floor, before)  # at most

        self.run(work())

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # -- watches -------------------------------------------------------------------------------------------------------

    @rule(
        replica=REPLICAS,
        text=st.sampled_from([None, "state=On"]),
        meanwhile=st.none() | st.tuples(REPLICAS, NAMES, STATES),
    )
    def watch(self, replica: int, text: str | None, meanwhile: tuple[int, str, str] | None) -> None:
        """Start with the present state, during which another replica may write."""

        async def work() -> None:
            self.meanwhile = meanwhile
            before = self.newest
            watch = Watch(self.replicas[replica].watch(params(None, text)), text, before, {})
            self.watches.append(watch)
            await self._read_initial_state(watch)
            self.meanwhile = None
            watch.seen = self.newest  # the other replica writes before the lamps are read

        self.run(work())

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), replica=REPLICAS)
    def resume(self, data: st.DataObject, replica: int) -> None:
        """A watch breaks and goes on where it was, perhaps at the other replica."""

        async def work() -> None:
            watch = data.draw(st.sampled_from(self.watches))
            await self._stop(watch)
            watch.lines, watch.reading, watch.exact = EventReader(), None, watch.text is None
            watch.seen, watch.present = watch.at, self.lamps_at(watch.at, watch)
            watch.stream = self.replicas[replica].watch(params(watch.at, watch.text))

        self.run(work())

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        async def work() -> None:
            watch = data.draw(st.sampled_from(self.watches))
            self.watches.remove(watch)
            await self._stop(watch)

        self.run(work())

    @precondition(lambda self: self.watches)
    @rule(data=st.data(), pieces=st.integers(1, 3))
    def read(self, data: st.DataObject, pieces: int) -> None:
        """One reader reads on; the others lag behind."""

        async def work() -> None:
            watch = data.draw(st.sampled_from(self.watches))
            for _ in range(pieces):
                await self._read(watch, 1.0)

        self.run(work())

    @precondition(lambda self: self.watches)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        async def work() -> None:
            await self._drain(data.draw(st.sampled_from(self.watches)))

        self.run(work())

    @invariant()
    def gone_watches_are_forgotten(self) -> None:
        self.watches = [watch for watch in self.watches if not watch.gone]

    # -- what readers are sent -----------------------------------------------------------------------------------------

    async def _drain(self, watch: Watch) -> None:
        """Read until it has everything, or gets the error that its place is gone."""
        newest = self.newest
        async with asyncio.timeout(10 * SETTLED_S):
            while watch.at < newest and not watch.gone:
                await self._read(watch, SETTLED_S)
        if not watch.gone:
            assert watch.present == self.lamps_at(newest, watch)

    async def _read(self, watch: Watch, within_s: float) -> None:
        """Read one piece if there is one in that time."""
        if watch.gone:
            return
        watch.reading = watch.reading or asyncio.ensure_future(anext(watch.stream))
        await asyncio.wait({watch.reading}, timeout=within_s)
        if watch.reading.done():
            piece, watch.reading = watch.reading.result(), None
            try:
                for each in self._events(watch, piece):
                    self._take(watch, each)
            except Gone:
                assert watch.at < self.floor, "nothing has been dropped that it had not seen"
                watch.gone = True

    @staticmethod
    def _events(watch: Watch, piece: bytes) -> Iterator[WatchEvent]:
        for line in piece.decode().split("\n"):
            if (event := watch.lines.take(line)) is not None:
                yield event

    async def _read_initial_state(self, watch: Watch) -> None:
        """The lamps as of some moment during the call, each once, and the number from which changes follow."""
        while True:
            for each in self._events(watch, await anext(watch.stream)):
                if each.type == "BOOKMARK":
                    watch.at = each.rv
                    return
                assert (each.type, each.view["name"] in watch.present) == ("ADDED", False)
                watch.present[each.view["name"]] = each.view["state"]

    def _take(self, watch: Watch, event: WatchEvent) -> None:
        if not watch.exact:
            self._take_inexact(watch, event)
            return
        missed = self._expected(watch, event.rv)
        if event.type == "BOOKMARK":
            assert event.rv >= watch.at
            assert not missed, "it was not sent what came before"
        else:
            assert missed == [(event.type, event.rv, event.view["name"], event.view["state"])]
        watch.at = event.rv

    def _take_inexact(self, watch: Watch, event: WatchEvent) -> None:
        assert event.rv > watch.at or event.type == "BOOKMARK", "twice, or out of order"
        watch.at = event.rv
        if event.type in ("ADDED", "MODIFIED"):
            watch.present[event.view["name"]] = event.view["state"]
        elif event.type == "DELETED":
            watch.present.pop(event.view["name"], None)

    def _expected(self, watch: Watch, up_to: int) -> list[tuple[str, int, str, str]]:
        """What the reader has to be sent up to a number; records that it was."""
        found = []
        for each in self.log:
            if not watch.seen < each.rv <= up_to:
                continue
            had, has = each.name in watch.present, each.type != "DELETED" and watch.selects(each.state)
            type = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get((had, has))
            if type is not None:
                found.append((type, each.rv, each.name, each.state))
            if has:
                watch.present[each.name] = each.state
            else:
                watch.present.pop(each.name, None)
        watch.seen = max(watch.seen, up_to)
        return found

    async def _stop(self, watch: Watch) -> None:
        if watch.reading is not None:
            watch.reading.cancel()
            await asyncio.wait({watch.reading})
        await watch.stream.aclose()  # type: ignore[attr-defined]


class Interrupted(Lamps):
    """A replica; while it reads the present state, the other may write."""

    def __init__(self, url: str, machine: WatchMachine) -> None:
        super().__init__(url, shared=True)
        self._machine = machine

    def views(self) -> list[ResourceView]:
        if self._machine.meanwhile is not None:
            written, self._machine.meanwhile = self._machine.meanwhile, None
            self._machine.write(*written)
        return super().views()


@pytest.mark.looptime
@pytest.mark.parametrize("text", [None, "state=On"])
@pytest.mark.parametrize("before", [[], [("a", "On")], [("a", "Off")]])
async def test_what_is_written_while_a_watch_reads_the_present_state_is_sent_once(
    tmp_path: Path, text: str | None, before: list[tuple[str, str]]
) -> None:
    """By another replica: the state has the change, and the journal has it after the number from which it is read."""
    machine = WatchMachine()
    machine.replicas = [Interrupted(f"sqlite:///{tmp_path / 'lamps.db'}", machine) for _ in range(2)]
    for name, state in before:
        machine.write(0, name, state)
    machine.meanwhile = 1, "a", "Broken" if before == [("a", "On")] and text is None else "On"
    watch = Watch(machine.replicas[0].watch(params(None, text)), text, machine.newest, {})
    await machine._read_initial_state(watch)
    watch.seen = machine.newest
    machine.write(1, "b", "On")
    await machine._drain(watch)
    assert watch.present.keys() == {"a", "b"}
    await machine._stop(watch)


TestWatchesInAnyOrder = WatchMachine.TestCase
TestWatchesInAnyOrder.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
