"""Every durable write is followed by a possible end of the process; starting again converges.

One story (create, lose a node, grow, move, delete) is run over and over. In each run one service dies right after its n-th
committed write: the caller never hears that it succeeded, everything in memory is gone, and the service starts again
on what it had written. Whatever n is, the story ends the same and the invariants hold. A small machine is as good, and
quicker.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from matrixcommon.model.errors import MatrixError
from matrixcommon.persistence.database_session import Database
from tests.small_stack import SmallStack
from tests.stack import Stack

TABLES = {"resource": "allocations", "link": "slices", "compute": "instances", "infer": "deployments"}
"""A table that only this service has, to know whose records these are."""


class Killer:
    """Ends `service` after its `at`-th commit that changed anything since a `moment` of the story, by default its begin;
    counts them all."""

    def __init__(self, service: str, at: int | None, moment: str = "") -> None:
        self.service = service
        self.at = at
        self.moment = moment
        self.commits = 0
        self.stack: Stack | None = None
        self.restart: asyncio.Task[None] | None = None

    def reached(self, moment: str) -> None:
        """The story has come so far; from its own moment on a killer counts."""
        if moment == self.moment:
            self.moment = ""

    def committed(self, records: Database) -> None:
        if self.stack is None or self.moment or TABLES[self.service] not in records.metadata.tables:
            return
        self.commits += 1
        if self.commits == self.at:
            self.restart = asyncio.create_task(self._restart())
            raise RuntimeError("the process ends here, after its commit and before it can tell anybody")

    async def _restart(self) -> None:
        assert self.stack is not None
        await self.stack.kill(self.service)
        await asyncio.sleep(5)
        await self.stack.start(self.service)


@pytest.fixture
def killer(monkeypatch):
    """Makes a Killer that sees every commit."""
    killers: list[Killer] = []
    wake = Database._wake

    def woken(records: Database) -> None:
        wake(records)
        for each in killers:
            each.committed(records)

    monkeypatch.setattr(Database, "_wake", woken)

    def make(service: str, at: int | None, moment: str = "") -> Killer:
        killers.append(Killer(service, at, moment))
        return killers[-1]

    return make


async def insist(call) -> None:
    """Call until it is acknowledged, as any client of a cloud does."""
    while True:
        try:
            await call()
            return
        except MatrixError:
            await asyncio.sleep(2)


async def story(tmp_path, killer: Killer) -> None:
    async with SmallStack(tmp_path) as stack:
        killer.stack = stack
        await insist(lambda: stack.apply("one", 3, spares=1))
        view = await stack.active("one", 3)
        await stack.check()
        lost = view.members[1].node
        killer.reached("a node is lost")
        stack.impair("f", "node-down", lost)

        async def replaced() -> bool:
            now = await stack.compute.find_instance("one")
            return now is not None and lost not in {m.node for m in now.members} and now.ready_nodes == 3

        await stack.until(replaced, "the lost node is replaced", within_s=1800)
        killer.reached("it grows")
        await insist(lambda: stack.apply("one", 5, spares=1))
        await stack.active("one", 5)
        await stack.check()
        stack.repair("f")
        killer.reached("it moves")
        await insist(lambda: stack.apply("one", 5, spares=1, placement={"policy": "spread"}))
        moved = await stack.active("one", 5)
        assert len({m.cabinet for m in moved.members if m.role == "member"}) == 3, "Active, yet not where it is to lie"
        await stack.check()
        await insist(lambda: stack.compute.delete_instance("one"))
        await stack.gone("one")
        await stack.nothing_left()
        await stack.check()
        if killer.restart is not None:
            await killer.restart


async def preempt(tmp_path, killer: Killer) -> None:
    """Somebody of higher priority comes and leaves; who was preempted waits and comes back; then its lease ends."""
    async with SmallStack(tmp_path) as stack:
        await stack.http["resource"].post("/v1/domains/sn0-c02:close", json={})
        killer.stack = stack
        await insist(lambda: stack.apply("old", 5))
        await stack.active("old", 5)
        killer.reached("somebody is preempted")
        await insist(lambda: stack.apply("urgent", 6, priority=1, preemption="LowerPriority"))
        await stack.active("urgent", 6)

        async def waits() -> bool:
            view = await stack.compute.find_instance("old")
            current = {each.instance for each in await stack.link.slices()}
            return view is not None and view.state in ("Pending", "Provisioning") and current == {"urgent"}

        await stack.until(waits, "who was preempted holds nothing and waits")
        await stack.check()
        await insist(lambda: stack.compute.delete_instance("urgent"))
        await stack.gone("urgent")
        await stack.active("old", 5)
        await stack.check()
        await insist(lambda: stack.apply("old", 5, lease_s=120))
        await stack.gone("old")
        await stack.until(nothing(stack), "nothing is left")
        await stack.check()
        if killer.restart is not None:
            await killer.restart


async def grow(tmp_path, killer: Killer) -> None:
    """An instance grows by more than its spares, and shrinks again; it has as many spares in the end."""
    async with SmallStack(tmp_path) as stack:
        await insist(lambda: stack.apply("one", 2, spares=2))
        await stack.active("one", 2)

        async def spares_ready() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and any(
                each.type == "SparesAvailable" and each.status == "True" for each in view.conditions
            )

        await stack.until(spares_ready, "its spares stand ready")
        view = await stack.compute.find_instance("one")
        assert view is not None
        before = {each.node for each in view.members}
        killer.stack = stack
        await insist(lambda: stack.apply("one", 5, spares=2))
        grown = await stack.active("one", 5)
        assert before <= {each.node for each in grown.members if each.role == "member"}, "its spares are members"
        await stack.check()
        await stack.until(spares_ready, "it has new spares")
        await insist(lambda: stack.apply("one", 3, spares=2))
        await stack.active("one", 3)
        await stack.until(spares_ready, "it keeps its spares")
        await stack.check()
        await insist(lambda: stack.compute.delete_instance("one"))
        await stack.gone("one")
        await stack.nothing_left()
        if killer.restart is not None:
            await killer.restart


async def request(stack: Stack, method: str, service: str, path: str, body: dict | None = None) -> None:
    """Ask until it is done, as any client of a cloud does."""
    while True:
        try:
            answer = await stack.http[service].request(method, path, json=body, timeout=None)
        except httpx.HTTPError:
            answer = None
        if answer is not None and answer.status_code in (200, 201, 202, 204, 404):
            return
        await asyncio.sleep(2)


async def to_zero(tmp_path, killer: Killer) -> None:
    """A policy gives back the nodes of a model that nobody asks for; a request brings it back, with its pools."""
    async with SmallStack(tmp_path, infer=True) as stack:
        await insist(lambda: stack.apply("one", 4))
        await stack.active("one", 4)
        await request(stack, "PUT", "infer", "/v1/deployments/one", {"instance": "one"})
        killer.stack = stack
        policy = {
            "scaleTargetRef": {"name": "one"},
            "minReplicas": 0,
            "maxReplicas": 6,
            "cooldownPeriod": 60,
            "pools": {},
        }
        await request(stack, "PUT", "compute", "/v1/scaling-policies/one", policy)

        async def suspended() -> bool:
            view = await stack.compute.find_instance("one")
            return view is not None and view.state == "Suspended"

        await stack.until(suspended, "its nodes are given back")
        await stack.check()
        killer.reached("a request comes in")
        body = {"model": "one", "prompt": "is anybody there", "max_tokens": 4}
        await request(stack, "POST", "infer", "/v1/completions", body)
        await stack.active("one", 4)

        async def as_before() -> bool:
            view = (await stack.get("infer", "/v1/deployments/one")).json()
            roles = sorted(view["roles"].values())
            return (view["state"], roles) == ("Serving", ["decode"] * 2 + ["prefill"] * 2)

        await stack.until(as_before, "it serves with the pools that it had")
        await stack.check()
        await request(stack, "DELETE", "compute", "/v1/scaling-policies/one")
        await request(stack, "DELETE", "infer", "/v1/deployments/one")
        await insist(lambda: stack.compute.delete_instance("one"))
        await stack.gone("one")
        await stack.nothing_left()
        if killer.restart is not None:
            await killer.restart


def nothing(stack: Stack):
    async def left() -> bool:
        await stack.nothing_left()
        return True

    return left


STORIES = {"heal": story, "preempted": preempt, "to zero": to_zero, "grown": grow}


async def count_commits(tmp_path, killer, service: str, text: str) -> int:
    counting = killer(service, None)
    await STORIES[text](tmp_path, counting)
    return counting.commits


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("reported", "service", "at", "moment"),
    [
        ("heal", "compute", 20, "a node is lost"),
        ("heal", "resource", 3, "a node is lost"),
        ("heal", "link", 3, "it moves"),
        ("preempted", "compute", 10, "somebody is preempted"),
        ("to zero", "compute", 10, ""),
        ("to zero", "infer", 2, "a request comes in"),
        ("grown", "compute", 3, ""),
        ("grown", "resource", 1, ""),
        ("grown", "resource", 3, ""),
    ],
)
async def test_crash_after_a_commit_converges(tmp_path, killer, reported, service, at, moment):
    one = killer(service, at, moment)
    await STORIES[reported](tmp_path, one)
    since = f"after {moment!r}" if moment else "in all"
    assert one.restart is not None, f"the story has only {one.commits} commits of {service} {since}"


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reported", list(STORIES))
@pytest.mark.parametrize("service", list(TABLES))
async def test_crash_after_every_commit_converges(tmp_path, killer, service, reported):
    (tmp_path / "count").mkdir()
    total = await count_commits(tmp_path / "count", killer, service, reported)
    for at in range(1, total + 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        await STORIES[reported](folder, killer(service, at))
