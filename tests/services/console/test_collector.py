"""What the console knows where a service does not always answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from services.console.live.collector import Collector
from tests.clocks import LoopClock

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(60)]

NODE = {
    "name": "sn0-c00-n0", "supernode": "sn0", "cabinet": "sn0-c00", "npus": 8, "state": "Available",
    "agent": "Connected", "health": "Healthy", "updatedAt": "2026-01-01T00:00:00Z",
}  # fmt: skip
CAPACITY = {"largestBlock": {"all": 1}, "supernodes": [], "cabinets": []}


class Watch(httpx.AsyncByteStream):
    """One node and the bookmark after it, and then nothing for ever."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"event: ADDED\nid: 1\ndata: %s\n\nevent: BOOKMARK\nid: 1\ndata: {}\n\n" % json.dumps(NODE).encode()
        await asyncio.Event().wait()


async def test_capacity_is_asked_for_until_it_is_answered():
    """The nodes change once, and never again."""
    refusals = 3

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal refusals
        if request.url.path == "/v1/nodes":
            return httpx.Response(200, stream=Watch())
        if request.url.path == "/v1/capacity":
            refusals -= 1
            return httpx.Response(503) if refusals >= 0 else httpx.Response(200, json=CAPACITY)
        return httpx.Response(503)

    known = asyncio.Event()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service") as http:
        collector = Collector(dict.fromkeys(("resource", "link", "compute", "infer", "agents"), http), LoopClock(0.0))
        collector.changed = lambda: known.set() if collector.capacity else None
        running = [asyncio.create_task(task()) for task in collector.tasks()]
        async with asyncio.timeout(3600):
            await known.wait()
        for task in running:
            task.cancel()
    assert collector.capacity == CAPACITY


async def test_a_service_that_hangs_does_not_answer_though_its_watch_is_open():
    hangs = False

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/nodes":
            return httpx.Response(200, stream=Watch())
        if request.url.path == "/healthz" and hangs:
            raise httpx.ReadTimeout("nothing comes", request=request)
        return httpx.Response(200 if request.url.path == "/healthz" else 503)

    changed = asyncio.Event()
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://service") as http:
        collector = Collector(dict.fromkeys(("resource", "link", "compute", "infer", "agents"), http), LoopClock(0.0))
        collector.changed = changed.set
        running = [asyncio.create_task(task()) for task in collector.tasks()]
        for hangs in (False, True, False):
            async with asyncio.timeout(3600):
                while collector.services["resource"] is hangs:
                    changed.clear()
                    await changed.wait()
        for task in running:
            task.cancel()
