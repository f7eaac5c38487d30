"""Whoever watches through the console holds up nobody else. Over sockets: a transport in this process has no bound."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

import httpx
import pytest

from services.chassis.http import CONNECTIONS_MAX
from services.console.main import ConsoleSettings, build
from services.testing.asgi import StreamingASGITransport
from tests.clocks import LoopClock

pytestmark = pytest.mark.timeout(60)


async def test_as_many_watches_as_a_client_usually_has_leave_room_for_others() -> None:
    """A service that answers a watch with nothing but its head, and everything else at once."""
    watched, all_watch = 0, asyncio.Event()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal watched
        head = await reader.readuntil(b"\r\n\r\n")
        if b"watch=true" not in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            return writer.close()
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n")
        watched += 1
        if watched == CONNECTIONS_MAX:
            all_watch.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2 * CONNECTIONS_MAX)
    async with server:
        port = server.sockets[0].getsockname()[1]
        app = build(ConsoleSettings(compute_url=f"http://127.0.0.1:{port}"), LoopClock(0.0))
        way = StreamingASGITransport(app)
        async with httpx.AsyncClient(base_url="http://console", transport=way, timeout=None) as browser:
            path = "/api/compute/v1/instances"
            watches = [asyncio.create_task(browser.get(path, params={"watch": "true"})) for _ in range(CONNECTIONS_MAX)]
            await all_watch.wait()
            try:
                assert (await browser.get(path)).status_code == 200
            finally:
                for watch in watches:
                    watch.cancel()
                await asyncio.gather(*watches, return_exceptions=True)
                await way.aclose()
