"""A front end of CloudMatrix-Infer: `python -m services.infer.front_end --help`.

Any number of stateless front ends relay to the one process that has the engines; authorization, metering and limits are
decided there. A front end holds unanswered requests: if that process dies before the first byte of an answer, the
request is sent again once it is back, so requests that wait for a deployment survive a restart. Requests that must not
be repeated, and answers that have begun, end with it: with 503 and Retry-After, or a stream that ends with an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
from pydantic import Field
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from infer_workload.openai.answers import stream_error
from matrixcommon.model.errors import MatrixError, Unavailable
from services.chassis.http_server.request_bodies import RelayedBodies
from services.chassis.http_server.serving import serve
from services.chassis.logging import configure_logging
from services.chassis.settings import Settings
from services.infer.refusals import refuse

log = logging.getLogger(__name__)

RETRY_INTERVAL_WALL_S = 0.2
CONNECT_WALL_S = 2.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "proxy-connection"}
"""Headers of a connection rather than a message (RFC 9110, 7.6.1), which are not relayed."""
RETRYABLE_METHODS = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}
FINAL_EVENTS = (b"data: [DONE]", b'data: {"error"')
"""The last events of a regular stream of completions."""
COMPLETIONS = "completions"
"""The end of completions' paths: these requests may be repeated until the first byte of their answer."""


class FrontEndSettings(Settings):
    """A front end of CloudMatrix-Infer."""

    engine_url: str = Field("http://127.0.0.1:8404", description="URL of the process with the engines")
    hold_s: float = Field(
        60.0, ge=0, le=3600, description="wall seconds that a request waits while that process is down"
    )


class FrontEnd:
    """Relays each request to the engines' process, waiting up to `hold_s` wall seconds while that is down."""

    def __init__(self, engine: httpx.AsyncClient, hold_s: float) -> None:
        self._engine = engine
        self._hold_s = hold_s
        self._bodies = RelayedBodies()
        self.waiting = 0
        """The number of requests waiting for that process to come back."""

    async def relay(self, request: Request) -> Response:
        try:
            async with self._bodies.read(request) as body:
                return await self._forward(request, body)
        except MatrixError as refused:
            return refuse(refused, request.url.path)

    async def _forward(self, request: Request, body: bytes) -> Response:
        deadline = asyncio.get_running_loop().time() + self._hold_s
        may_retry = request.method in RETRYABLE_METHODS or request.url.path.endswith(COMPLETIONS)
        may_retry = may_retry or "idempotency-key" in request.headers
        while True:
            try:
                answer = await self._send_upstream(request, body)
            except httpx.HTTPError as away:
                sent = not isinstance(away, httpx.ConnectError | httpx.ConnectTimeout)
                if (sent and not may_retry) or asyncio.get_running_loop().time() >= deadline:
                    raise Unavailable("CloudMatrix-Infer does not answer", retry_after_s=2.0) from away
            else:
                headers = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
                streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
                content = _pass_through(answer, streamed and request.url.path.endswith(COMPLETIONS))
                return StreamingResponse(content, answer.status_code, headers, background=BackgroundTask(answer.aclose))
            self.waiting += 1
            try:
                await asyncio.sleep(RETRY_INTERVAL_WALL_S)
            finally:
                self.waiting -= 1

    async def _send_upstream(self, request: Request, body: bytes) -> httpx.Response:
        headers = [(name, value) for name, value in request.headers.raw if name.decode() not in {*HOP_BY_HOP, "host"}]
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        upstream_request = self._engine.build_request(request.method, path, headers=headers, content=body)
        sending = asyncio.ensure_future(self._engine.send(upstream_request, stream=True))
        disconnected = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({sending, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise Unavailable("the client disconnected")
            return sending.result()
        finally:
            disconnected.cancel()
            sending.cancel()
            with suppress(asyncio.CancelledError, httpx.HTTPError):
                await asyncio.wait({sending})


async def _pass_through(answer: httpx.Response, stream: bool) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer as they come. A stream that is cut off ends with an error event."""
    last, ended = b"", False
    try:
        async for chunk in answer.aiter_raw():
            if not stream:
                yield chunk
                continue
            last += chunk
            if cut := last.rfind(b"\n\n") + 1:  # pass on whole events only
                events, last = last[: cut + 1], last[cut + 1 :]
                ended = ended or any(end in events for end in FINAL_EVENTS)
                yield events
    except httpx.HTTPError:
        if not stream:
            raise
    finally:
        await answer.aclose()
    if stream and not ended:
        yield stream_error(Unavailable("the connection to CloudMatrix-Infer was lost", retry_after_s=2.0))


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def build(settings: FrontEndSettings, engine: httpx.AsyncClient | None = None) -> Starlette:
    """The application. `engine` replaces the client of the engines' process in tests."""
    timeout = httpx.Timeout(None, connect=CONNECT_WALL_S)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    url = settings.engine_url
    client = engine or httpx.AsyncClient(
        base_url=url, timeout=timeout, limits=limits, trust_env=False, verify=url.startswith("https")
    )
    front_end = FrontEnd(client, settings.hold_s)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    routes = [Route("/healthz", healthz), Route("/{path:path}", _Relayed(front_end.relay))]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.front_end = front_end
    return app


class _Relayed:
    """The relay as an ASGI application, which Starlette routes with every method."""

    def __init__(self, relay: Callable[[Request], Awaitable[Response]]) -> None:
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._relay(Request(scope, receive))
        await response(scope, receive, send)


def main(argv: Sequence[str] | None = None) -> None:
    settings = FrontEndSettings.load("front-end", argv)
    configure_logging("front-end", settings.log_level)
    serve(build(settings), settings)


if __name__ == "__main__":
    main()
