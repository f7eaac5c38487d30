"""The embedded Kubernetes API on a socket: granian carries the bytes, in a thread of its own.

HTTP/1.1, HTTP/2, TLS and websockets are granian's; here is what it may take: how many connections, how long a head, how
much of it at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from granian.constants import Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels
from granian.net import SocketHolder
from granian.server.embed import Server as Granian

from matrixcontainer.kubeapi.server import KubeApi

BACKLOG = 1024
CONNECTIONS_MAX = 16_384
FILES_SPARED = 256  # what else is open: the database, the log, webhooks that are asked
FILES_MORE = 2 * BACKLOG
HEAD_BYTES_MAX = 64 * 1024  # of one request; also what is read of a pipeline or a body ahead of the answer
HEAD_MS_MAX = 75_000  # for the head of the next request to come
STREAMS_MAX = 100  # requests at once on a connection of HTTP/2, as many as upstream allows
PING_MS = 30_000
FILES_CHECK_S = 1.0
FAREWELL_S = 1.0  # for requests under way, once asked to stop
LOGGING: dict[str, Any] = {"formatters": {}, "handlers": {}, "loggers": {}}  # its lines go where all others go


class Server:
    """Starts the controllers before it listens; ends open watches before it waits for connections to finish."""

    def __init__(
        self,
        api: KubeApi,
        listener: socket.socket,
        certificate: Path | None = None,
        key: Path | None = None,
        target: Callable[..., Any] | None = None,
    ) -> None:
        """`target`: what is served instead of the API itself, around it."""
        self.api, self._listener = api, listener
        self._stopping = asyncio.Event()
        self._granian = _OnSocket(
            listener,
            target=target or api.asgi,
            interface=Interfaces.ASGINL,
            backlog=BACKLOG,
            backpressure=_connections_max(),
            http1_settings=HTTP1Settings(header_read_timeout=HEAD_MS_MAX, max_buffer_size=HEAD_BYTES_MAX),
            http2_settings=HTTP2Settings(
                initial_connection_window_size=HEAD_BYTES_MAX,
                initial_stream_window_size=HEAD_BYTES_MAX,
                max_concurrent_streams=STREAMS_MAX,
                max_headers_size=HEAD_BYTES_MAX,
                keep_alive_interval=PING_MS,
            ),
            log_level=LogLevels.error,
            log_dictconfig=LOGGING,
            ssl_cert=certificate,
            ssl_key=key,
            ssl_protocol_min=SSLProtocols.tls12,
        )

    async def serve(self, announce: Callable[[], None] = lambda: None) -> None:
        """Until `stop`; `announce` is called once the first connection would be answered."""
        await self.api.start()
        self._listener.listen(BACKLOG)
        serving = asyncio.create_task(self._granian.serve())
        serving.add_done_callback(lambda _: self._stopping.set())
        announce()
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FILES_CHECK_S):
                        await self._stopping.wait()
                self._make_room()
        finally:
            self._listener.close()
            self._granian.stop()
            await self.api.stop()
            await asyncio.wait((serving,), timeout=FAREWELL_S)
        if serving.done():
            serving.result()

    def _make_room(self) -> None:
        """Allow more open files once there are none left; there is nothing to be done where the system allows no more.

        Only those who connect and say nothing bring it so far, for they count as connections after their handshake.
        granian gives up a handshake after 10 s, but as long as it cannot accept a connection it does not look.
        """
        try:
            os.close(os.dup(self._listener.fileno()))
        except OSError:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft == hard:
                raise
            more = soft + FILES_MORE
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (more if hard == resource.RLIM_INFINITY else min(more, hard), hard)
            )

    def stop(self) -> None:
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT stop it; having been asked to stop and having stopped is success."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self.stop)


class _OnSocket(Granian):
    """Serves a socket that was bound by somebody else."""

    def __init__(self, listener: socket.socket, **settings: Any) -> None:
        super().__init__(**settings)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        listens = (BACKLOG,) if sys.platform.startswith(("linux", "freebsd")) else ()
        self._shd = SocketHolder(os.dup(self._listener.fileno()), False, *listens)  # type: ignore[call-arg, assignment]


def _connections_max() -> int:
    """As many as open files allow. Some are spared, and more can be had in need."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + FILES_SPARED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, max(hard - FILES_MORE, hard // 2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - FILES_SPARED, 1)
