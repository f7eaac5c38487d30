"""Every durable write is followed by a possible end of the process; starting again converges.

One story (create, lose a node, grow, move, delete) is run over and over. In each run one service dies right after its n-th
committed write: the caller never hears that it succeeded, everything in memory is gone, and the service starts again
on what it had written. Whatever n is, the story ends the same and the invariants hold.
"""

from __future__ import annotations

import asyncio

import pytest

from matrixresource.vocabulary.errors import MatrixError
from matrixresource.vocabulary.records import Records
from tests.stack import Stack

TABLES = {"resource": "allocations", "link": "slices", "compute": "instances"}
"""A table that only this service has, to know whose records these are."""


class Killer:
    """Ends `service` after its `at`-th commit that changed anything; counts them all."""

    def __init__(self, service: str, at: int | None) -> None:
        self.service = service
        self.at = at
        self.commits = 0
        self.stack: Stack | None = None
        self.restart: asyncio.Task[None] | None = None

    def committed(self, records: Records) -> None:
        if self.stack is None or TABLES[self.service] not in records._changes.metadata.tables:
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
    wake = Records._wake

    def woken(records: Records) -> None:
        wake(records)
        for each in killers:
            each.committed(records)

    monkeypatch.setattr(Records, "_wake", woken)

    def make(service: str, at: int | None) -> Killer:
        killers.append(Killer(service, at))
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
    async with Stack(tmp_path) as stack:
        killer.stack = stack
        await insist(lambda: stack.apply("one", 3, spares=1))
        view = await stack.active("one", 3)
        await stack.check()
        lost = view.members[1].node
        stack.hurt("f", "node-down", lost)

        async def replaced() -> bool:
            now = await stack.compute.find_instance("one")
            return now is not None and lost not in {m.node for m in now.members} and now.ready_nodes == 3

        await stack.until(replaced, "the lost node is replaced", within_s=1800)
        await insist(lambda: stack.apply("one", 5, spares=1))
        await stack.active("one", 5)
        await stack.check()
        stack.mend("f")
        await insist(lambda: stack.apply("one", 5, spares=1, placement={"policy": "spread"}))
        moved = await stack.active("one", 5)
        assert len({m.cabinet for m in moved.members if m.role == "member"}) == 5
        await stack.check()
        await insist(lambda: stack.compute.delete_instance("one"))
        await stack.gone("one")
        await stack.nothing_left()
        await stack.check()
        if killer.restart is not None:
            await killer.restart


async def count_commits(tmp_path, killer, service: str) -> int:
    counting = killer(service, None)
    await story(tmp_path, counting)
    return counting.commits


@pytest.mark.looptime
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("service", "commits"), [("compute", 97), ("link", 51), ("resource", 61)])
async def test_a_crash_after_any_commit_converges(tmp_path, killer, service, commits, share):
    one = killer(service, max(1, int(commits * share)))
    await story(tmp_path, one)
    assert one.restart is not None, f"the story has only {one.commits} commits of {service}"


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("service", list(TABLES))
async def test_a_crash_after_every_commit_converges(tmp_path, killer, service):
    (tmp_path / "count").mkdir()
    total = await count_commits(tmp_path / "count", killer, service)
    for at in range(1, total + 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        await story(folder, killer(service, at))
