"""A streaming httpx transport to an ASGI application, so that watches work without a network.

httpx's own ASGI transport returns the response only when the application has finished, which a watch never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx


def scope_of(request: httpx.Request) -> dict[str, Any]:
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(key.lower(), value) for key, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "state": {},
    }


class StreamingASGITransport(httpx.AsyncBaseTransport):
    """Runs each request as a task and streams the response body as it is sent. While `down` is set, every request fails
    with ConnectError."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.down = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        body = await request.aread()
        scope = scope_of(request)
        outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        started: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        closed = asyncio.Event()
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if started.done():
                    return  # the client has disconnected
                started.set_result((message["status"], message.get("headers", [])))
            elif message["type"] == "http.response.body":
                if message.get("body"):
                    await outbox.put(message["body"])
                if not message.get("more_body", False):
                    await outbox.put(None)

        async def run() -> None:
            try:
                await self.app(scope, receive, send)
            except Exception as wrong:
                if not started.done():
                    started.set_exception(wrong)
            finally:
                await outbox.put(None)

        def cut_off(_: asyncio.Task[None]) -> None:
            if not started.done():
                started.set_exception(httpx.ReadError("cut off"))

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(cut_off)
        status, headers = await started
        return httpx.Response(status, headers=headers, stream=_Body(outbox, closed, task), request=request)

    def cut(self) -> None:
        """Abort every open response, as when a process dies."""
        for task in list(self._tasks):
            task.cancel()

    async def aclose(self) -> None:
        self.cut()


class _Body(httpx.AsyncByteStream):
    def __init__(self, outbox: asyncio.Queue[bytes | None], closed: asyncio.Event, task: asyncio.Task[None]) -> None:
        self._outbox = outbox
        self._closed = closed
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._outbox.get()) is not None:
            yield chunk

    async def aclose(self) -> None:
        self._closed.set()
        self._task.cancel()
