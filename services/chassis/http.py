"""HTTP clients: one httpx client per called service, with a deadline, a token, request id, trace and fence."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import httpx
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from matrixcommon.model.fencing import FENCE, HEADER
from matrixcommon.telemetry.trace import TRACER, traceparent
from services.chassis.logging import REQUEST_ID, TRACEPARENT
from services.chassis.tracing import tracing_enabled

DEADLINE_WALL_S = 10.0
CONNECTIONS_MAX, IDLE_CONNECTIONS_MAX = 100, 20
"""Most connections of one client to its service, and how many idle ones are kept."""


class _NoCookies(httpx.Cookies):
    """Ignores cookies: services set none, and looking for them in an answer takes longer than reading it."""

    def extract_cookies(self, response: httpx.Response) -> None:
        return


class _Client(httpx.AsyncClient):
    _none = _NoCookies()

    @property  # type: ignore[misc]
    def cookies(self) -> httpx.Cookies:
        return self._none


class TracedTransport(httpx.AsyncBaseTransport):
    """Records a client span, up to the head of the answer, for each request made while a span is recorded. Requests
    outside a trace, such as polls and reports, are marked as not sampled."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not trace.get_current_span().is_recording():
            return await self._inner.handle_async_request(request)
        attributes = {"http.request.method": request.method, "url.full": str(request.url)}
        attributes["server.address"] = request.url.host
        with TRACER.start_as_current_span(request.method, kind=SpanKind.CLIENT, attributes=attributes) as span:
            request.headers["traceparent"] = traceparent()
            response = await self._inner.handle_async_request(request)
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 400:
                span.set_status(StatusCode.ERROR)
            return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _add_request_headers(request: httpx.Request) -> None:
    if REQUEST_ID.get():
        request.headers.setdefault("x-request-id", REQUEST_ID.get())
    if (fence := FENCE.get()) is not None:
        request.headers.setdefault(HEADER, fence.token)
    if TRACEPARENT.get():
        version, trace_id, _, flags = TRACEPARENT.get().split("-")
        flags = "00" if tracing_enabled() else flags  # TracedTransport overrides it for requests with a recorded span
        request.headers.setdefault("traceparent", f"{version}-{trace_id}-{secrets.token_hex(8)}-{flags}")
    elif tracing_enabled():
        request.headers.setdefault("traceparent", f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00")


def http_client(
    base_url: str,
    token: str = "",
    transport: httpx.AsyncBaseTransport | None = None,
    connections_max: int | None = CONNECTIONS_MAX,
) -> httpx.AsyncClient:
    """A client for the service at `base_url`. It retries a refused connection, never a request that was sent. Beyond
    `connections_max` (None: unlimited) requests wait for each other. A client shared by all users must be unlimited, or
    open watches would lock everyone else out.

    The system's certificates, some MB per client, are loaded only for https.
    """
    limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=IDLE_CONNECTIONS_MAX)
    transport = transport or httpx.AsyncHTTPTransport(retries=1, verify=base_url.startswith("https"), limits=limits)
    return _Client(
        base_url=base_url,
        timeout=httpx.Timeout(DEADLINE_WALL_S, connect=2.0),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        transport=TracedTransport(transport) if tracing_enabled() else transport,
        event_hooks={"request": [_add_request_headers]},
        trust_env=False,
    )


class InProcessTransport(httpx.AsyncBaseTransport):
    """A transport to an application in this process, for clients of their own service. Each request runs as a task of
    its own, so that context variables that it sets (request id, fence) do not leak to the caller."""

    def __init__(self, app: Any) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.create_task(self._transport.handle_async_request(request))
