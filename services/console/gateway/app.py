"""The console's application: a few routes around the page.

| route | who may | what it is |
| --- | --- | --- |
| `GET /`, `GET /<page or file>` | everybody | the page; it holds nothing of the machine |
| `GET /whoami` | who has a token | its name, project and role |
| `POST /login-links`, `POST /login-links:redeem` | who has a token; who has the code | `matrixctl console` |
| `GET /live` | viewer, editor, admin | the picture of the machine for its audience, as server-sent events |
| `/api/<service>/v1/...` | as that service decides | the service, asked with the user's own token |
| `GET /metrics` | viewer of all projects, admin | Prometheus |
| `GET /healthz`, `GET /readyz` | everybody | |

The token travels in the Authorization header, never in a cookie: another site's page cannot make a browser send it, and
another port of the same machine never sees it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matrixcommon.api.authorization import EVERY_PROJECT, VIEWERS, Principal
from matrixcommon.api.query_parameters import refuse_parameters
from matrixcommon.model.errors import Forbidden, InternalError, Malformed, MatrixError, TooLarge, Unavailable
from services.chassis.access import Tokens
from services.chassis.http_server.request_bodies import refuse_encoding
from services.chassis.periodic import supervise
from services.chassis.problem_document import problem_response
from services.chassis.version import version
from services.console.gateway import static_files
from services.console.gateway.logins import LoginLinks
from services.console.gateway.metrics import FRAMES, SKIPPED, STREAMS
from services.console.gateway.proxy import Proxy
from services.console.gateway.streams import CountedStream, Streams
from services.console.live.broadcast import Broadcast
from services.console.live.collector import Collector

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def create_console(
    tokens: Tokens, users: dict[str, Any], collector: Collector, broadcast: Broadcast, links: LoginLinks | None = None
) -> Starlette:
    """The application. `users`: an httpx client per service, without a token of its own."""
    gateway = Gateway(tokens, broadcast, links or LoginLinks())
    proxy = Proxy(users)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = [asyncio.create_task(supervise(work)) for work in (*collector.tasks(), broadcast.run)]
        yield
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes = [
        Route("/healthz", _sync_endpoint(lambda request: PlainTextResponse("ok"))),
        Route("/readyz", _sync_endpoint(_ready)),
        Route("/metrics", _sync_endpoint(gateway.metrics)),
        Route("/whoami", _sync_endpoint(gateway.whoami)),
        Route("/login-links", _with_problem_documents(gateway.make_link), methods=["POST"]),
        Route("/login-links:redeem", _with_problem_documents(gateway.redeem_link), methods=["POST"]),
        Route("/live", _sync_endpoint(gateway.live)),
        Route("/api/{service}/{rest:path}", _with_problem_documents(proxy.relay), methods=methods),
        Route("/api/{service}", _with_problem_documents(proxy.relay), methods=methods),
        Route("/", _sync_endpoint(static_files.serve_file)),
        Route("/{path:path}", _sync_endpoint(static_files.serve_file)),
    ]
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(SecurityHeaders)])


class SecurityHeaders:
    """Middleware that adds security headers to every answer, so that a browser does no more than the page needs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, sending)


class Gateway:
    """Authentication, login links, and the live stream."""

    def __init__(self, tokens: Tokens, broadcast: Broadcast, links: LoginLinks) -> None:
        self._tokens, self._broadcast, self._links = tokens, broadcast, links
        self._streams = Streams()
        self._registry = CollectorRegistry()
        STREAMS.read(self._registry, lambda: broadcast.readers)
        FRAMES.read(self._registry, lambda: broadcast.frames)
        SKIPPED.read(self._registry, lambda: broadcast.skipped)

    def _viewer(self, request: Request) -> Principal:
        """The principal of a request. Raises Unauthorized, Forbidden."""
        principal = self._tokens.principal(request.headers.get("authorization"))
        if principal.role not in VIEWERS:
            raise Forbidden(f"a token of role {principal.role} cannot use the console; at least viewer is required")
        return principal

    def whoami(self, request: Request) -> Response:
        principal = self._viewer(request)
        refuse_parameters(request.query_params)
        shown = {"name": principal.name, "project": principal.own_project, "role": principal.role}
        return JSONResponse(shown | {"everywhere": principal.everywhere, "version": version()})

    def metrics(self, request: Request) -> Response:
        if not self._viewer(request).everywhere:
            raise Forbidden("metrics cover all projects: only a viewer or admin of all projects may read them")
        return Response(generate_latest(self._registry), media_type="text/plain; version=0.0.4")

    async def make_link(self, request: Request) -> Response:
        self._viewer(request)
        refuse_parameters(request.query_params)
        token = request.headers.get("authorization", "").partition(" ")[2].strip()
        return JSONResponse({"code": self._links.deposit(token)}, 201)

    async def redeem_link(self, request: Request) -> Response:
        refuse_parameters(request.query_params)
        code = (await _read_document(request)).get("code")
        if not isinstance(code, str):
            raise Malformed('send {"code": "..."}', field="code")
        return JSONResponse({"token": self._links.redeem(code)})

    def live(self, request: Request) -> Response:
        principal = self._viewer(request)
        refuse_parameters(request.query_params)
        self._streams.admit(principal)
        audience = EVERY_PROJECT if principal.everywhere else principal.project
        frames = self._stream(request, principal, audience)
        return CountedStream(self._streams, principal, frames)

    async def _stream(self, request: Request, principal: Principal, audience: str) -> AsyncIterator[bytes]:
        """The stream, until its token ends, changes, or cannot be checked; then the page reconnects."""
        # The picture relates emulated time to this host's clock, and a browser's may differ.
        yield b"event: now\ndata: %s\n\n" % orjson.dumps({"wall": time.time()})
        async for frame in self._broadcast.frames_for(audience):
            try:
                if self._viewer(request) != principal:
                    return
            except Unavailable:
                return
            except MatrixError as refused:
                yield b"event: end\ndata: %s\n\n" % orjson.dumps(refused.problem())
                return
            yield frame


async def _read_document(request: Request) -> dict[str, Any]:
    """A small JSON object. Raises Malformed, TooLarge, UnsupportedEncoding."""
    refuse_encoding(request.headers.get("content-encoding", ""))
    text = b""
    async for chunk in request.stream():
        text += chunk
        if len(text) > 4096:
            raise TooLarge("the body exceeds 4096 bytes", field="body")
    try:
        found = orjson.loads(text)
    except ValueError as wrong:
        raise Malformed(f"the body is not JSON: {wrong}", field="body") from wrong
    if not isinstance(found, dict):
        raise Malformed("the body must be a JSON object", field="body")
    return found


def _ready(request: Request) -> Response:
    """Always ready: the page itself shows which services do not answer."""
    return JSONResponse({"ready": True, "waitingFor": None}, headers={"X-Process-Id": str(os.getpid())})


def _sync_endpoint(endpoint_function: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return endpoint_function(request)

    return _with_problem_documents(endpoint)


def _with_problem_documents(
    endpoint_function: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer errors as problem documents."""

    async def endpoint(request: Request) -> Response:
        try:
            return await endpoint_function(request)
        except MatrixError as refused:
            return problem_response(refused, request.url.path)
        except ClientDisconnect:
            return problem_response(InternalError("the browser disconnected"), request.url.path)

    return endpoint
