"""Shared parts of the benchmarks of durable requests: each database in turn, a service as a process, plain HTTP.

A service runs as a separate process, first on a folder on this disk (SQLite with full sync), then on a PostgreSQL that
the benchmark starts with default settings. Clients are coroutines of this process, each with its own keep-alive
connection. They write and read HTTP/1.1 by hand, since a client library takes longer for a request than the service.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import Figure
from tests.e2e.resource_process import ResourceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, has_postgres

Process = TypeVar("Process", bound=ResourceProcess)
Measure = Callable[[str, str], Iterator[Figure]]
"""Measures the figures on a database, given its name and URL (empty: SQLite in the service's folder)."""


def on_each_database(*measures: Measure) -> Iterator[Figure]:
    for figures in measures:
        yield from figures("SQLite", "")
        if has_postgres():
            with a_postgres() as url:
                yield from figures("PostgreSQL", url)


@contextmanager
def run_service(kind: type[Process], url: str, *flags: str) -> Iterator[Process]:
    """Run a service on a new database."""
    with tempfile.TemporaryDirectory(prefix="cm-bench-") as folder:
        process = kind(Path(folder), *flags, *(["--database", url] if url else []))
        process.start()
        try:
            yield process
        finally:
            process.kill()


class Connection:
    """One client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request and return the response's status and body."""
        type_and_length = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: bench\r\n{type_and_length}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = answer.partition(b"content-length:")
        length = int(rest.partition(b"\r\n")[0]) if found else 0
        return int(answer[9:12]), await self._reader.readexactly(length)

    async def expect(self, wanted: int, method: str, path: str, body: bytes = b"") -> None:
        """Send a request, and exit unless the response has the wanted status."""
        status, reported = await self.request(method, path, body)
        if status != wanted:
            raise SystemExit(f"{method} {path}: {status} instead of {wanted}: {reported[:300]!r}")


async def run_concurrently(clients: int, client: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Run `client(number)` for all clients concurrently."""
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))


@asynccontextmanager
async def connect(process: ResourceProcess) -> AsyncIterator[Connection]:
    """Open a connection to a service."""
    host, port = process.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Connection(reader, writer)
    writer.close()
    await writer.wait_closed()
