"""Relays requests of the page to the service they name, with the user's token and no rights of the console."""

from __future__ import annotations

import httpx
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from matrixcommon.model.errors import NotFound, Unavailable
from services.chassis.http_server.request_bodies import RelayedBodies

ANSWER_TIMEOUT_WALL_S = 65.0
"""Longer than an operation's `:wait`, and than the longest silence of a watch."""
REQUEST_HEADERS = (
    "authorization",
    "content-type",
    "accept",
    "if-match",
    "if-none-match",
    "idempotency-key",
    "traceparent",
    "x-request-id",
)
RESPONSE_HEADERS = ("content-type", "etag", "retry-after", "location", "x-request-id", "traceparent")


class Proxy:
    """`/api/<service>/v1/...` is that service's `/v1/...`."""

    def __init__(self, services: dict[str, httpx.AsyncClient]) -> None:
        self._services = services
        self._bodies = RelayedBodies()

    async def relay(self, request: Request) -> Response:
        """Relay a request and stream the service's answer. Raises NotFound, TooLarge, Unavailable,
        UnsupportedEncoding."""
        name = request.path_params["service"]
        http = self._services.get(name)
        if http is None:
            raise NotFound(f"unknown service {name[:40]!r}; known are {', '.join(self._services)}")
        url = self._url(request, name)
        headers = {key: request.headers[key] for key in REQUEST_HEADERS if key in request.headers}
        async with self._bodies.read(request) as body:
            asked = http.build_request(
                request.method, url, headers=headers, content=body, timeout=ANSWER_TIMEOUT_WALL_S
            )
            try:
                found = await http.send(asked, stream=True)
            except httpx.HTTPError as wrong:
                raise Unavailable(f"{name} does not answer ({type(wrong).__name__})") from wrong
        passed = {key: found.headers[key] for key in RESPONSE_HEADERS if key in found.headers}
        return StreamingResponse(
            found.aiter_bytes(), found.status_code, passed | {"Cache-Control": "no-store"},
            background=BackgroundTask(found.aclose),
        )  # fmt: skip

    def _url(self, request: Request, name: str) -> str:
        """The path as it was sent, with its escapes; only below /v1/."""
        raw = request.scope.get("raw_path") or request.url.path.encode()
        path = raw.decode("latin-1").removeprefix(f"/api/{name}")
        if not path.startswith("/v1/") or ".." in path.replace("%2e", ".").replace("%2E", ".").split("/"):
            raise NotFound("only paths below /v1/ of a service are served")
        return path + (f"?{request.url.query}" if request.url.query else "")
