"""The embedded Kubernetes API on a socket, behind TLS."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.transport.connection import Connection
from matrixcontainer.kubeapi.transport.http1 import Http1

BACKLOG = 512
KEEP_ALIVE_S = 75.0
SWEEP_S = 5.0
FAREWELL_S = 1.0  # for requests under way, once asked to stop


class Server:
    """Starts the controllers before it listens; ends open watches before it waits for connections to finish."""

    def __init__(self, api: KubeApi, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self.api, self._listener, self._tls = api, listener, tls
        self._clients: set[Http1] = set()
        self._stopping = asyncio.Event()
        self._alone = asyncio.Event()

    async def serve(self, announce: Callable[[], None] = lambda: None) -> None:
        """Until `stop`; `announce` is called once the first connection would be answered."""
        loop = asyncio.get_running_loop()
        await self.api.start()
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        loop.add_reader(self._listener, self._accept)
        announce()
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP_S):
                        await self._stopping.wait()
                self._sweep(loop.time() - KEEP_ALIVE_S)
        finally:
            loop.remove_reader(self._listener)
            self._listener.close()
            await self.api.stop()
            await self._farewell()

    def stop(self) -> None:
        self._stopping.set()

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT stop it; having been asked to stop and having stopped is success."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self.stop)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                sock, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file handles left: those who wait are accepted once some are free
                loop.remove_reader(self._listener)
                loop.call_later(1.0, self._accept_again)
                return
            connection = Connection(loop, sock, self._tls)
            client = Http1(self.api.app, connection)
            self._clients.add(client)
            connection.ended = partial(self._gone, client)
            connection.start()

    def _gone(self, client: Http1) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._alone.set()

    def _accept_again(self) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _sweep(self, before: float) -> None:
        """End connections nobody has used for a while, those that never finished a request among them."""
        for client in list(self._clients):
            if client.idle_since is not None and client.idle_since < before:
                client.connection.abort()

    async def _farewell(self) -> None:
        self._alone.clear()
        for client in list(self._clients):
            client.end()
        if self._clients:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._alone.wait()
        for client in list(self._clients):
            client.connection.abort()


def tls_of(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context
