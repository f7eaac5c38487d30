"""The embedded Kubernetes API on a socket: behind TLS in its own process, or in the clear inside an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType

import uvicorn

from matrixcontainer.kubeapi.app import App


class Server(uvicorn.Server):
    """Starts the controllers before it listens; ends open watches before it waits for connections to finish."""

    def __init__(self, config: uvicorn.Config, app: App, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._api = app.api
        self._announce = announce

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT:
            sig = signal.SIGTERM  # a second Ctrl-C is no reason to cut off writes
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._api.start()
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._api.stop()
        await super().shutdown(sockets)
        self._captured_signals.clear()  # having been asked to stop and having stopped is success


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket. The protocol is named because asyncio turns Nagle's delay off only where it is."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


def server_of(
    app: App,
    certificate: Path | None = None,
    key: Path | None = None,
    announce: Callable[[], None] = lambda: None,
) -> Server:
    """`announce` is called once the first connection would be answered."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http="httptools",
        loop="asyncio",
        ws="none",
        lifespan="off",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        server_header=False,
        backlog=512,
    )
    return Server(config, app, announce)


@contextlib.asynccontextmanager
async def in_this_loop(app: App, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve without TLS on a free loopback port while the block runs; yields the URL, for clients that need one."""
    listener = listen(host, 0)
    server = server_of(app)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
