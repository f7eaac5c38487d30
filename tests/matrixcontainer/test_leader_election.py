"""Leadership by Lease: whoever cannot say in time that it is there has stopped before another may begin."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.operator.leader_election import LEASE_DURATION_S, LeaderElector

pytestmark = pytest.mark.looptime


class Leases:
    """An API with one Lease. It writes at once and answers after `delay_s`, or never."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.delay_s = 0.0
        self.written_at = 0.0

    async def find(self, kind: Kind, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        return self.lease

    async def create(self, kind: Kind, body: dict[str, Any], namespace: str | None = None) -> None:
        await self._write(body)

    async def merge(self, kind: Kind, name: str, body: dict[str, Any], namespace: str | None = None) -> None:
        await self._write(body)

    async def _write(self, body: dict[str, Any]) -> None:
        self.written_at = asyncio.get_running_loop().time()
        kept = (self.lease or {"metadata": {}, "spec": {}})["spec"] | body["spec"]
        metadata = {**body["metadata"], "resourceVersion": str(self.written_at)}
        self.lease = {"metadata": metadata, "spec": kept}
        await asyncio.sleep(self.delay_s)


@pytest.mark.parametrize("delay_s", [8.0, 3600.0])
async def test_holder_with_unanswered_renewals_stops_before_the_lease_expires(delay_s: float) -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    holder = LeaderElector(cast(KubeClient, leases), "first", loop.time)
    await holder.acquire()
    keeping = asyncio.create_task(holder.renew())
    await asyncio.sleep(60)
    assert not keeping.done()
    leases.delay_s = delay_s
    renewed_at = leases.written_at + 2
    await asyncio.sleep(renewed_at + LEASE_DURATION_S - loop.time())
    assert keeping.done()


@pytest.mark.parametrize("quiescent", [True, False])
async def test_next_holder_learns_whether_the_handover_was_clean(quiescent: bool) -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    first, second = (LeaderElector(cast(KubeClient, leases), name, loop.time) for name in ("first", "second"))
    await first.acquire()
    assert first.clean_handover, "nobody was there before"
    await first.release(quiescent=quiescent)
    await second.acquire()
    assert second.clean_handover == quiescent


@pytest.mark.parametrize("name", ["first", "second"])
async def test_no_clean_handover_after_a_kill(name: str) -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    first, killed = (LeaderElector(cast(KubeClient, leases), "first", loop.time) for _ in range(2))
    await first.acquire()
    await first.release(quiescent=True)
    await killed.acquire()
    follower = LeaderElector(cast(KubeClient, leases), name, loop.time)
    await follower.acquire()
    assert not follower.clean_handover
