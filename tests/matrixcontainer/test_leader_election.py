"""Leadership by Lease: whoever cannot say in time that it is there has stopped before another may begin."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.operator.leader_election import DURATION_S, Leadership

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
        await self._write(body["spec"])

    async def merge(self, kind: Kind, name: str, body: dict[str, Any], namespace: str | None = None) -> None:
        await self._write(body["spec"])

    async def _write(self, spec: dict[str, Any]) -> None:
        self.written_at = asyncio.get_running_loop().time()
        self.lease = {"metadata": {"resourceVersion": str(self.written_at)}, "spec": spec}
        await asyncio.sleep(self.delay_s)


@pytest.mark.parametrize("delay_s", [8.0, 3600.0])
async def test_a_holder_whose_renewals_are_not_answered_stops_before_another_may_begin(delay_s: float) -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    holder = Leadership(cast(KubeClient, leases), "first", loop.time)
    await holder.acquire()
    keeping = asyncio.create_task(holder.keep())
    await asyncio.sleep(60)
    assert not keeping.done()
    leases.delay_s = delay_s
    renewed_at = leases.written_at + 2
    await asyncio.sleep(renewed_at + DURATION_S - loop.time())
    assert keeping.done()
