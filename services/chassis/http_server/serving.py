"""Serve an application on one port until SIGTERM; then open watches end at once, and other requests are cut off after a
second."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matrixcommon.model.clock import Clock, WallClock
from matrixcommon.model.errors import Unavailable
from services.chassis.http_server.emulated_date import EmulatedDate
from services.chassis.http_server.http_protocol import BoundedHttpProtocol
from services.chassis.http_server.open_files import allow_connections
from services.chassis.http_server.warning_limit import SERVER_WARNINGS
from services.chassis.interpreter import freeze_heap
from services.chassis.problem_document import error_renderer
from services.chassis.settings import Settings

log = logging.getLogger(__name__)

KEEP_ALIVE_WALL_S = 120
"""How long a connection may be idle. Longer than the clients in use keep theirs (httpx 5 s, aiohttp 15 s, Go 90 s), so
that they close it: a server that closes first may reset a request that is on its way, the more so while it is busy."""


class GracefulShutdown:
    """Middleware for an orderly stop of the process. Watches end with a regular end of the stream, so that clients
    continue elsewhere or later. A request cancelled after that gets 503 if nothing was sent yet; a stream that cannot
    be resumed elsewhere (a completion) is cut off, so that no client takes it for complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._stopping = False
        self._watches: dict[asyncio.Task[Any], None] = {}

    def stop(self) -> None:
        self._stopping = True
        for task in self._watches:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        task, response_started = asyncio.current_task(), False
        assert task is not None

        async def send_tracked(message: Message) -> None:
            nonlocal response_started
            if not response_started:
                response_started = True
                if scope["method"] == "GET" and _is_event_stream(message):
                    self._watches[task] = None
                    if self._stopping:
                        task.cancel()
            await send(message)

        try:
            await self._app(scope, receive, send_tracked)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            task.uncancel()
            with suppress(asyncio.CancelledError):  # the client may not read what is sent
                await self._end(scope, receive, send, response_started, task in self._watches)
        finally:
            self._watches.pop(task, None)

    async def _end(self, scope: Scope, receive: Receive, send: Send, response_started: bool, watch: bool) -> None:
        if watch:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not response_started:
            unavailable = Unavailable("the process is stopping; retry")
            await error_renderer(scope)(unavailable, scope["path"])(scope, receive, send)


def _is_event_stream(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in start.get("headers", ())
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: GracefulShutdown) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.stop()
        await super().shutdown(sockets)


def serve(app: ASGIApp, settings: Settings, clock: Clock | None = None) -> None:
    """Serve until told to stop. All present objects are excluded from garbage collection. With port 0, the port taken
    is in the log line `listening`. The Date of answers is the time of `clock`, by default wall time."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With an explicit protocol, as asyncio disables Nagle's algorithm only then: otherwise answers take 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(512)
    except OSError as wrong:
        raise SystemExit(f"cannot listen on {settings.host}, port {settings.port}: {wrong}") from wrong
    log.info("listening", extra={"url": f"http://{settings.host}:{listener.getsockname()[1]}"})
    stoppable = GracefulShutdown(EmulatedDate(app, clock or WallClock()))
    BoundedHttpProtocol.connections_max = allow_connections()
    freeze_heap()
    _Server(server_config(stoppable, settings), stoppable).run(sockets=[listener])


def server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(SERVER_WARNINGS)
    return uvicorn.Config(
        app,
        date_header=False,
        log_config=None,
        access_log=False,
        http=BoundedHttpProtocol,
        ws="none",
        loop=settings.EVENT_LOOP,
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_WALL_S,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
