"""Leadership by Lease: whoever cannot say in time that it is there has stopped before another may begin."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.operator.leader_election import GENERATION, LEASE_DURATION_S, LeaderElector

pytestmark = pytest.mark.looptime


class Leases:
    """An API with one Lease. It writes at once and answers after `delay_s`, or never."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.delay_s = 0.0
        self.written_at = 0.0

    async def find(self, kind: Kind, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        return self.lease

    async def create(self, kind: Kind, body: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
        await self._write(body)
        assert self.lease is not None
        return self.lease

    async def merge(self, kind: Kind, name: str, body: dict[str, Any], namespace: str | None = None) -> None:
        await self._write(body)

    async def _write(self, body: dict[str, Any]) -> None:
        self.written_at = asyncio.get_running_loop().time()
        kept = (self.lease or {"metadata": {}, "spec": {}})["spec"] | body["spec"]
        before = (self.lease or {"metadata": {}})["metadata"].get("annotations") or {}
        annotations = before | (body["metadata"].get("annotations") or {})
        metadata = {"uid": "u", "annotations": annotations, "resourceVersion": str(self.written_at)}
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


@pytest.mark.parametrize("name", ["first", "second"])
async def test_next_holder_has_a_newer_generation_after_a_kill(name: str) -> None:
    """Also a new process of the same identity, which need not wait for the Lease to expire."""
    leases, loop = Leases(), asyncio.get_running_loop()
    killed, follower = (LeaderElector(cast(KubeClient, leases), each, loop.time) for each in ("first", name))
    await killed.acquire()
    await follower.acquire()
    assert killed.fence
    assert follower.fence
    assert killed.fence.name == follower.fence.name
    assert killed.fence.generation < follower.fence.generation


async def test_generation_stays_while_the_lease_is_held() -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    holder = LeaderElector(cast(KubeClient, leases), "first", loop.time)
    await holder.acquire()
    fence = holder.fence
    keeping = asyncio.create_task(holder.renew())
    await asyncio.sleep(60)
    assert holder.fence is fence
    keeping.cancel()


async def test_generation_grows_without_its_annotation() -> None:
    """Somebody has removed it, or put nonsense there."""
    leases, now = Leases(), [1000.0]
    for spoilt in ({}, {GENERATION: "many"}, {GENERATION: "9" * 15}):
        elector = LeaderElector(cast(KubeClient, leases), "first", lambda: now[0])
        await elector.acquire()
        assert elector.fence
        assert elector.fence.generation == now[0] * 1000
        assert leases.lease
        leases.lease["metadata"]["annotations"] = spoilt
        now[0] += 1


async def test_paused_holder_stops_once_a_process_of_its_identity_has_taken_over() -> None:
    """It neither renews nor releases the other's Lease."""
    leases, loop = Leases(), asyncio.get_running_loop()
    paused, follower = (LeaderElector(cast(KubeClient, leases), "first", loop.time) for _ in range(2))
    await paused.acquire()
    await follower.acquire()
    await asyncio.wait_for(paused.renew(), LEASE_DURATION_S)
    await paused.release()
    assert leases.lease
    assert leases.lease["spec"]["holderIdentity"] == "first"
    keeping = asyncio.create_task(follower.renew())
    await asyncio.sleep(60)
    assert not keeping.done()
    keeping.cancel()


async def test_released_lease_is_acquired_at_once() -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    first, second = (LeaderElector(cast(KubeClient, leases), name, loop.time) for name in ("first", "second"))
    await first.acquire()
    await first.release()
    before = loop.time()
    await second.acquire()
    assert loop.time() == before
