"""One replica leads: the lease runs out or is handed back, and whoever led before is refused everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.model.errors import Forbidden, Malformed, StaleLeader
from matrixcommon.model.fencing import FENCE, HEADER, Fence, parse_fence
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcompute.store.store import Base, InstanceRow
from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.chassis.leadership import Leadership
from services.compute.controllers import AUTOSCALING_PERIOD_S
from services.compute.main import MIGRATIONS
from tests.clocks import LoopClock
from tests.small_stack import ReplicatedStack
from tests.stack import Stack

pytestmark = pytest.mark.looptime

LEASE_S = 3.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DatabaseEngine]:
    engine = DatabaseEngine(f"sqlite:///{tmp_path / 'compute.db'}")
    engine.migrate(MIGRATIONS)
    yield engine
    engine.close()


@dataclass
class Replica:
    """One process over the shared database; its work writes an instance whenever it is asked to."""

    engine: DatabaseEngine
    shared: bool = True
    paused: bool = False
    wanted: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    refused: list[StaleLeader] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = Database(self.engine.sessions, Base.metadata, LoopClock(0.0), self.shared)
        self.fences = Fences(self.records)
        self.leadership = Leadership("compute", self.records, self.fences, LoopClock(0.0), lease_wall_s=LEASE_S)
        renew = self.leadership._renew
        self.leadership._renew = (  # type: ignore[method-assign]
            lambda generation, lost: None if self.paused else renew(generation, lost)
        )

    async def work(self) -> None:
        while True:
            name = await self.wanted.get()
            try:
                self.write(name)
            except StaleLeader as refused:
                self.refused.append(refused)

    def write(self, name: str) -> None:
        with self.records.transaction() as session:
            session.add(InstanceRow(name=name, project="default", spec={"nodes": 1}, state="Pending"))

    def written(self) -> list[str]:
        with self.records.reading() as session:
            return sorted(row.name for row in session.query(InstanceRow))


@asynccontextmanager
async def leading(*replicas: Replica) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(replica.leadership.lead(replica.work)) for replica in replicas]
    await asyncio.sleep(0.01)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_leads_and_the_other_takes_over_at_once_when_it_ends_well(engine: DatabaseEngine) -> None:
    first, second = Replica(engine), Replica(engine)
    async with leading(first, second) as (first_task, _):
        await asyncio.sleep(10 * LEASE_S)
        generation = first.leadership.generation
        assert generation is not None, "a lease that is renewed goes to nobody else"
        assert second.leadership.generation is None
        first_task.cancel()
        await asyncio.sleep(LEASE_S / 2)
        assert second.leadership.generation is not None
        assert second.leadership.generation > generation


async def test_who_was_paused_meanwhile_changes_nothing(engine: DatabaseEngine) -> None:
    first, second = Replica(engine), Replica(engine)
    async with leading(first, second):
        first.wanted.put_nowait("before")
        await asyncio.sleep(1)
        first.paused = True
        await asyncio.sleep(LEASE_S * 1.5)
        assert second.leadership.generation is not None, "its lease has run out"
        assert first.leadership.generation is not None, "it has not noticed"
        first.wanted.put_nowait("late")
        second.wanted.put_nowait("after")
        await asyncio.sleep(0.01)
        assert [each.reason for each in first.refused] == ["StaleLeader"]
        assert first.written() == ["after", "before"]
        await asyncio.sleep(0.01)
        assert first.leadership.generation is None, "the refusal told it"


async def test_whoever_starts_on_a_file_leads_and_follows_what_led_before(engine: DatabaseEngine) -> None:
    before, after = Replica(engine, shared=False), Replica(engine, shared=False)
    async with leading(before), leading(after):
        before.wanted.put_nowait("late")
        await asyncio.sleep(0.01)
        assert len(before.refused) == 1
        assert after.written() == []


async def test_a_service_refuses_whom_another_has_followed(tmp_path: Path) -> None:
    async with Stack(tmp_path, tokens=True) as stack:
        http = stack.http["resource"]
        old, new = (Fence("elsewhere", generation) for generation in (4, 5))
        body = {"nodes": 1}
        ask = lambda name, fence: http.put(f"/v1/allocations/{name}", json=body, headers={HEADER: fence.token})  # noqa: E731
        assert (await ask("a", old)).status_code == 200
        assert (await ask("b", new)).status_code == 200
        late = await ask("c", old)
        assert (late.status_code, late.json()["reason"], late.json()["field"]) == (409, "StaleLeader", HEADER)
        await stack.restart("resource")
        assert (await ask("c", old)).status_code == 409, "it remembers across its own death"
        assert (await http.get("/v1/allocations", headers={HEADER: "5"})).json()["reason"] == "Malformed"
        editor = http_client("http://resource", stack.token("editor", project="red"), stack.transport_to("resource"))
        answer = await editor.get("/v1/allocations", headers={HEADER: new.token})
        assert (answer.status_code, answer.json()["reason"]) == (403, Forbidden.__name__)
        names = sorted(each.name for each in await stack.resource.allocations())
        assert names == ["a", "b"]


async def test_what_a_service_asks_to_answer_a_leader_is_asked_in_its_own_name(tmp_path: Path) -> None:
    """MatrixLink asks MatrixResource whose nodes a slice's members are, and leads nothing itself."""
    async with Stack(tmp_path, tokens=True) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        seen: list[str | None] = []
        asked = stack.transport_to("resource").handle_async_request

        async def noted(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers.get(HEADER))
            return await asked(request)

        stack.transport_to("resource").handle_async_request = noted  # type: ignore[method-assign]
        body = {
            "allocation": "one",
            "instance": "one",
            "plane": "vpc",
            "members": ["sn0-c00-n0"],
            "qosClass": "BestEffort",
        }
        slice = await stack.link.find_slice("one-vpc")
        assert slice is not None
        body["members"] = slice.members
        fence = Fence("elsewhere", 4)
        answer = await stack.http["link"].put("/v1/slices/more", json=body, headers={HEADER: fence.token})
        assert answer.status_code == 200, answer.text
        assert None in seen
        assert fence.token not in seen


async def test_a_policy_that_a_standby_was_asked_for_is_decided_by_at_once(tmp_path: Path) -> None:
    """By the one that leads, long before its period is over."""
    async with ReplicatedStack(tmp_path) as stack:
        await stack.apply("scaled", 1)
        await stack.active("scaled", 1)
        for least in (2, 3, 4):
            body = {"scaleTargetRef": {"name": "scaled"}, "minReplicas": least, "maxReplicas": 6}
            asked = await ask_standby(stack, "PUT", "/v1/scaling-policies/floor", body)
            assert asked.is_success, asked.text

            async def resized(least: int = least) -> bool:
                view = await stack.compute.find_instance("scaled")
                return view is not None and view.nodes == least

            assert await stack.until(resized, "resized") <= AUTOSCALING_PERIOD_S / 5
            await stack.active("scaled", least)


async def ask_standby(stack: ReplicatedStack, method: str, path: str, body: Any) -> httpx.Response:
    """Of two MatrixComputes, the one that does not lead."""
    for slot in ("compute", "compute-replica"):
        http = httpx.AsyncClient(transport=stack.slots[slot].transport, base_url="http://compute")
        if "\ncloudmatrix_leads 0.0\n" in (await http.get("/metrics")).text:
            return await http.request(method, path, json=body)
    raise AssertionError("both lead")


async def test_what_an_older_leader_asked_for_before_is_not_committed_after(engine: DatabaseEngine) -> None:
    """It was let in, and while it was decided its successor was heard of."""
    replica = Replica(engine)
    replica.fences.record_leader(Fence("compute", 7))
    token = FENCE.set(Fence("compute", 7))
    try:
        replica.write("a")
        replica.fences.record_leader(Fence("compute", 8))
        with pytest.raises(StaleLeader):
            replica.write("b")
    finally:
        FENCE.reset(token)
    assert replica.written() == ["a"]


@pytest.mark.parametrize("token", ["compute", "compute/", "compute/-1", "compute/1e3", "Compute/1", "a/" + "9" * 16])
async def test_a_fencing_token_is_a_name_and_a_generation(token: str) -> None:
    with pytest.raises(Malformed, match="NAME/GENERATION"):
        parse_fence(token)
