"""What an autoscaler is told of the work that comes in."""

from __future__ import annotations

import asyncio

import pytest

from infer_workload.timing.prefill import PrefillTiming
from tests.infer_workload.conftest import InferServer


async def test_no_work_is_reported_while_a_plane_carries_nothing(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch is dark and its routes have yet to change: a chunk would never end, and JSON has no number for it."""
    async with InferServer(fresh, scale=600.0) as server:
        await server.ensure()
        await server.until("Serving")

        async def work():
            answer = await server.http.get("/v1/deployments/r1/statistics", params={"windowS": 10})
            assert answer.status_code == 200, answer.text
            return answer.json().get("work")

        while await work() is None:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(PrefillTiming, "chunk_s", lambda *_, **__: float("inf"))
        assert await work() is None
