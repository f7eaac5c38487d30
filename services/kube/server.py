"""The embedded Kubernetes API on a socket, served by granian in its own thread.

granian does HTTP/1.1, HTTP/2, TLS and websockets; this module sets its limits: connections, size of heads, and
buffering.
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
from services.chassis.http_server.open_files import allow_connections

BACKLOG = 1024
FILE_LIMIT_STEP = 2 * BACKLOG
HEAD_BYTES_MAX = 64 * 1024  # of one request; also the read-ahead of a pipeline or body
HEAD_TIMEOUT_MS = 75_000  # for the head of the next request to arrive
STREAMS_MAX = 100  # concurrent requests on an HTTP/2 connection, as in upstream
PING_MS = 30_000
FILE_CHECK_INTERVAL_S = 1.0
SHUTDOWN_TIMEOUT_S = 1.0  # for requests under way when told to stop
LOGGING: dict[str, Any] = {"formatters": {}, "handlers": {}, "loggers": {}}  # its lines use the root logger


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
        """`target`: an application to serve instead, which wraps the API."""
        self.api, self._listener = api, listener
        self._stopping = asyncio.Event()
        self._granian = _SocketGranian(
            listener,
            target=target or api.asgi,
            interface=Interfaces.ASGINL,
            backlog=BACKLOG,
            backpressure=allow_connections(headroom=FILE_LIMIT_STEP),
            http1_settings=HTTP1Settings(header_read_timeout=HEAD_TIMEOUT_MS, max_buffer_size=HEAD_BYTES_MAX),
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
        """Serve until `stop`; `announce` is called once connections are accepted."""
        await self.api.start()
        self._listener.listen(BACKLOG)
        serving = asyncio.create_task(self._granian.serve())
        serving.add_done_callback(lambda _: self._stopping.set())
        announce()
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FILE_CHECK_INTERVAL_S):
                        await self._stopping.wait()
                self._raise_file_limit()
        finally:
            self._listener.close()
            self._granian.stop()
            await self.api.stop()
            await asyncio.wait((serving,), timeout=SHUTDOWN_TIMEOUT_S)
        if serving.done():
            serving.result()

    def _raise_file_limit(self) -> None:
        """Raise the limit of open files once there are none left; raises OSError if the system allows no more.

        Only clients that connect and send nothing cause this, since connections are counted after the TLS handshake.
        granian drops a handshake after 10 s, but does not check while it cannot accept a connection.
        """
        try:
            os.close(os.dup(self._listener.fileno()))
        except OSError:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft == hard:
                raise
            raised = soft + FILE_LIMIT_STEP
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (raised if hard == resource.RLIM_INFINITY else min(raised, hard), hard)
            )

    def stop(self) -> None:
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT; stopping on request counts as success."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self.stop)


class _SocketGranian(Granian):
    """Serves a socket that is already bound."""

    def __init__(self, listener: socket.socket, **settings: Any) -> None:
        super().__init__(**settings)
        self._listener = listener

    def _init_shared_socket(self) -> None:
        listens = (BACKLOG,) if sys.platform.startswith(("linux", "freebsd")) else ()
        self._shd = SocketHolder(os.dup(self._listener.fileno()), False, *listens)  # type: ignore[call-arg, assignment]
