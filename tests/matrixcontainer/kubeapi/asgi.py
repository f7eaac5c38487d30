"""The embedded Kubernetes API in one process with a test: a plain ASGI application, without a socket."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from matrixcontainer.kubeapi.auth.authentication import Access, User
from matrixcontainer.kubeapi.endpoints.app import App
from matrixcontainer.kubeapi.endpoints.request import BODY_BYTES_MAX, Request, add_header, query_of, stated_too_large
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.watch import Watch
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.backend import Database
from matrixcontainer.kubeapi.storage.store import Store
from matrixcontainer.kubeapi.transport.http1 import headers_of

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class AsgiKube(KubeApi):
    """It has no lifespan of its own: whoever builds it starts and stops it."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await serve(self.app, scope, receive, send)


def build_api(
    database: Database, now: Callable[[], float], rng: random.Random, tokens: dict[str, User] | None = None
) -> AsgiKube:
    """An API over a migrated database; `tokens` maps bearer tokens to users, `now` gives seconds since the epoch."""
    key = rng.randbytes(32)
    return AsgiKube(Core(Store(database, now), now, rng, Access(tokens or {}, key, now)))


async def serve(app: App, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    if scope["type"] != "http":
        return
    request = await _request_of(scope, receive)
    if request is None:
        return
    response = await app.respond(request)
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers_of(request, response)]
    if isinstance(response.body, bytes):
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    if isinstance(response.body, bytes):
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else response.body})
        return
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await _stream(app, request, response.body, receive, send)


async def _request_of(scope: dict[str, Any], receive: Receive) -> Request | None:
    """The request with its body, as far as that is read; None when the client went away."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        add_header(headers, name, value)
    raw = scope.get("raw_path")
    path = raw.decode("latin-1").partition("?")[0] if raw else scope["path"]
    request = Request(scope["method"], path, query_of(scope.get("query_string", b"")), headers)
    request.too_large = stated_too_large(headers)
    parts: list[bytes] = []
    size = 0
    while request.method not in ("GET", "HEAD") and not request.too_large:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        request.too_large = size > BODY_BYTES_MAX
        if not message.get("more_body"):
            break
    request.body = b"".join(parts)
    return request


async def lines(watch: Watch) -> AsyncIterator[bytes]:
    """A watch as chunks of whole lines."""
    wake = asyncio.Event()
    loop = asyncio.get_running_loop()
    watch.open(wake.set)
    try:
        while not watch.ended:
            wake.clear()
            if chunk := watch.take():
                yield chunk
            elif not watch.ended:
                timer = loop.call_at(watch.due, wake.set)
                await wake.wait()
                timer.cancel()
    finally:
        watch.close()


async def _stream(app: App, request: Request, body: Watch | AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Pump a stream until it ends or the client goes."""
    chunks = lines(body) if isinstance(body, Watch) else body
    pump = asyncio.ensure_future(_pump(chunks, send))
    hang_up = asyncio.ensure_future(_until_disconnected(receive))
    try:
        await asyncio.wait((pump, hang_up), return_when=asyncio.FIRST_COMPLETED)
        if pump.done() and (failure := pump.exception()) is not None and not isinstance(failure, OSError):
            app.failed(request, failure)
    finally:
        for task in (pump, hang_up):
            task.cancel()
        await asyncio.gather(pump, hang_up, return_exceptions=True)
        await chunks.aclose()  # type: ignore[attr-defined]


async def _pump(chunks: AsyncIterator[bytes], send: Send) -> None:
    async for chunk in chunks:
        if chunk:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
