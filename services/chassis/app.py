"""create_app: the common frame of every HTTP service.

It adds what every service has: /healthz, /readyz, /metrics, /openapi.json, problem documents, request ids and W3C trace
context in and out, bearer tokens, a limit on bodies, and watchers that run as long as the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace as otel
from prometheus_client import CollectorRegistry, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matrixcommon.api.authorization import VIEWERS, AccessRules, Caller, Principal, principal_of
from matrixcommon.api.fast_path import FastPath
from matrixcommon.model.errors import Forbidden, MatrixError
from matrixcommon.model.fencing import FENCE, HEADER, REQUEST_FENCE, KnownLeaders, parse_fence
from matrixcommon.persistence.database_session import Database
from matrixcommon.telemetry.trace import RESOURCE, traceparent
from services.chassis.access import Tokens
from services.chassis.database import awaited_database
from services.chassis.http_server.request_bodies import read_body
from services.chassis.leadership import Leadership
from services.chassis.logging import REQUEST_ID, TRACEPARENT
from services.chassis.metrics import RequestMetrics, leadership_metrics, watcher_metrics
from services.chassis.periodic import Periodic, supervise
from services.chassis.problem_document import ErrorRenderer, problem_response
from services.chassis.problems import describe_errors, install_error_handlers, method_refusal, to_matrix_error
from services.chassis.tracing import flush
from services.chassis.verb_routes import VerbRoutes

OPEN_PATHS = ("/healthz", "/readyz", "/openapi.json", "/docs")
SPANS: TelemetryConfig = {
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
    "exclude": lambda scope: scope["path"] in (*OPEN_PATHS, "/metrics"),
}
"""Enable FastAPI's own server spans, if a provider is set (`tracing.py`), and nothing else of its telemetry."""
_TRACEPARENT = re.compile(r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")


def create_app(
    name: str,
    title: str,
    routers: Iterable[APIRouter],
    access: AccessRules,
    *,
    tokens: Tokens | None = None,
    watchers: Sequence[Periodic] = (),
    tasks: Sequence[Callable[[], Awaitable[Any]]] = (),
    leadership: Leadership | None = None,
    leader_watchers: Sequence[Periodic] = (),
    leader_tasks: Sequence[Callable[[], Awaitable[Any]]] = (),
    ready: Callable[[], str | None] = lambda: None,
    records: Database | None = None,
    registry: CollectorRegistry | None = None,
    on_stop: Callable[[], None] = lambda: None,
    fences: KnownLeaders | None = None,
    render_error: ErrorRenderer = problem_response,
    probes: Sequence[str] = (),
) -> FastAPI:
    """A FastAPI application around `routers`, all of whose routes must be declared in `access`.

    `ready` returns None when the service can work, else what it waits for; it also waits until the database of its
    `records` takes writes. `tasks` run beside the watchers from start
    to stop, and are restarted if they fail; `leader_watchers` and `leader_tasks` likewise, but only while this
    replica leads. `registry` collects the service's own metrics beside those of its requests. `fences` refuse requests
    made in the name of a superseded leader. `render_error` is for a service with clients that do not know problem
    documents; `probes` are additional paths for the answer of /healthz.
    """
    registry, routers = registry or CollectorRegistry(), tuple(routers)
    access.check(routers)

    background: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(run_background, watchers, tasks)]
    if leadership is not None:
        background.append(
            partial(supervise, partial(leadership.lead, partial(run_background, leader_watchers, leader_tasks)))
        )
    app = FastAPI(
        title=title,
        version="1",
        lifespan=_lifespan(background, on_stop),
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        separate_input_output_schemas=False,
        telemetry=SPANS,
    )
    app.state.access = access
    app.state.leadership = leadership
    app.state.watchers = {watcher.name: watcher for watcher in (*watchers, *leader_watchers)}
    install_error_handlers(app, routers)
    for router in routers:
        app.router.routes.extend(router.routes)  # include_router builds each of them a second time
    describe_errors(app)
    watcher_metrics(registry, (*watchers, *leader_watchers))
    if leadership is not None:
        leadership_metrics(registry, leadership)
    _probes(app, ready, records, probes)
    _metrics(app, registry)
    app.add_middleware(
        RequestEdge,
        fast_path=FastPath(routers, access),
        tokens=tokens or Tokens(None),
        fences=fences,
        verbs=VerbRoutes(routers),
        metrics=RequestMetrics(registry),
        render_error=render_error,
        open_paths=frozenset({*OPEN_PATHS, *probes}),
    )
    return app


def _lifespan(
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]], on_stop: Callable[[], None]
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """The lifespan of a process: everything in `background` runs from start to stop."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = [asyncio.create_task(work()) for work in background]
        yield
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        on_stop()
        flush()

    return lifespan


def _probes(app: FastAPI, ready: Callable[[], str | None], records: Database | None, others: Sequence[str]) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return PlainTextResponse("ok")

    async def live() -> Response:
        return Response()

    for path in others:
        app.add_api_route(path, live, include_in_schema=False)

    @app.get("/readyz", include_in_schema=False)
    async def readyz(request: Request) -> Response:
        """`?exclude=database`, as Kubernetes' `?exclude=etcd`: for load balancers, since reads go on."""
        waiting = ready()
        if waiting is None and records is not None and "database" not in request.query_params.getlist("exclude"):
            waiting = awaited_database(records)
        # Two stacks on one host may try the same port: the header tells which process answers.
        return JSONResponse(
            {"ready": waiting is None, "waitingFor": waiting},
            200 if waiting is None else 503,
            {"X-Process-Id": str(os.getpid())},
        )


def _metrics(app: FastAPI, registry: CollectorRegistry) -> None:
    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        principal = principal_of(request)
        if principal.role not in VIEWERS or not principal.everywhere:
            raise Forbidden("metrics cover all projects: only a viewer or admin of all projects may read them")
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")


async def run_background(watchers: Sequence[Periodic], tasks: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Run a process's watchers and tasks forever."""
    running = [asyncio.create_task(watcher.run(), name=watcher.name) for watcher in watchers]
    running += [asyncio.create_task(supervise(task)) for task in tasks]
    try:
        await asyncio.Event().wait()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class RequestEdge:
    """Middleware around every request: authentication, body limit, request id, trace and metrics."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        fast_path: FastPath,
        tokens: Tokens,
        fences: KnownLeaders | None,
        verbs: VerbRoutes,
        metrics: RequestMetrics,
        render_error: ErrorRenderer,
        open_paths: frozenset[str],
    ) -> None:
        self._app = app
        self._fences = fences
        self._verbs = verbs
        self._fast_path = fast_path
        self._tokens = tokens
        self._metrics = metrics
        self._render_error = render_error
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        request_id = headers.get("x-request-id", "")[:64] or secrets.token_hex(8)
        REQUEST_ID.set(request_id)
        FENCE.set(None)
        REQUEST_FENCE.set(None)
        RESOURCE.set(scope["path"][4:] if scope["path"].startswith("/v1/") else "")
        trace = traceparent() or headers.get("traceparent", "")
        TRACEPARENT.set(trace if _TRACEPARENT.match(trace) else f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01")
        started, response_started = time.perf_counter(), False

        async def send_with_headers(message: Message) -> None:
            nonlocal response_started
            if message["type"] == "http.response.start":
                response_started = True
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                    (b"traceparent", TRACEPARENT.get().encode()),
                ]
                self._metrics.observe_request(scope["method"], message["status"], time.perf_counter() - started)
            await send(message)

        principal, body = None, None
        scope.setdefault("state", {})["render_error"] = self._render_error
        try:
            if scope["path"] not in self._open_paths:
                principal = self._tokens.principal(headers.get("authorization"))
                authenticate = partial(self._tokens.principal, headers.get("authorization"))
                scope["state"].update(principal=principal, authenticate=authenticate)
                self._record_leader(principal, headers.get(HEADER.lower()))
                body = await read_body(headers, receive)  # of nobody else, so that strangers fill no memory
        except MatrixError as refused:
            await self._render_error(refused, scope["path"])(scope, receive, send_with_headers)
            return
        method, path, query = scope["method"], scope["path"], scope["query_string"]
        if ":" in path and (served := self._verbs.methods(path)) and method not in served:
            await method_refusal(self._render_error, method, path, served)(scope, receive, send_with_headers)
            return
        redacting_send = _redacting_send(scope, send_with_headers, principal)
        try:
            found = None if principal is None else self._fast_path.find(method, path, query, headers, body, principal)
            if found is not None:
                scope["state"]["caller"], answer = found
                otel.get_current_span().update_name(f"{method} {found[0].rule.path}")
                response = await answer()
            else:
                await self._app(scope, receive if body is None else _replaying_receive(body, receive), redacting_send)
                return
        except Exception as wrong:  # handled here, since further out it would not be counted
            if response_started:
                raise
            response = self._render_error(to_matrix_error(wrong, scope["path"]), scope["path"])
        await response(scope, receive, redacting_send)

    def _record_leader(self, principal: Principal, token: str | None) -> None:
        """Record the leader in whose name the request is made. Raises Forbidden, Malformed, StaleLeader."""
        if token is None or self._fences is None:
            return
        if principal.role != "admin" or not principal.everywhere:
            raise Forbidden(f"only an admin of all projects may send {HEADER}, not {principal.name}")
        fence = parse_fence(token)
        self._fences.record_leader(fence)
        REQUEST_FENCE.set(fence)


def _redacting_send(scope: Scope, send: Send, principal: Principal | None) -> Send:
    """A `send` that hides other projects' names in answers, problem documents included."""
    if principal is None or principal.everywhere:
        return send
    started: Message | None = None
    chunks: list[bytes] = []

    async def send_redacted(message: Message) -> None:
        nonlocal started
        caller: Caller | None = scope.get("state", {}).get("caller")
        if caller is None or not caller.rule.holders:
            await send(message)
        elif message["type"] == "http.response.start":
            started = message
            if not dict(message["headers"]).get(b"content-type", b"").endswith(b"json"):
                await send(message)
                started = None
        elif started is None:
            await send(message)
        else:
            chunks.append(message.get("body", b""))
            if message.get("more_body"):
                return
            text = b"".join(chunks)
            if text:
                text = orjson.dumps(caller.hide(orjson.loads(text)))
            size = (b"content-length", str(len(text)).encode())
            started["headers"] = [*(each for each in started["headers"] if each[0] != size[0]), size]
            await send(started)
            await send({"type": "http.response.body", "body": text})

    return send_redacted


def _replaying_receive(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns the body, which has been read already."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
