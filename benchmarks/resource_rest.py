"""A durable allocation through REST: how long one takes, and how many a second, each on disk before it is acknowledged.

MatrixResource runs as a process of its own over a folder on this disk (SQLite with full sync), then over a PostgreSQL
of the benchmark's own with its usual settings. The clients are coroutines of this process, each with a connection of
its own that is kept open: HTTP/1.1 written and read by hand, since a client library takes longer over a request than
the service does. Each asks for one node under a new name and releases it again; allocations are counted, and as many
releases are made beside them. Then, on a machine of eight supernodes, clients fill it NPU by NPU and empty it again:
allocations alone, and releases alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import Figure
from tests.e2e.resource_process import ResourceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, has_postgres

SECONDS = 5.0
WARM_UP_SECONDS = 1.0
WISH = b'{"nodes":1}'
FILLING, FILLERS = b'{"npus":1}', 32
EACH = 8 * 384 * 4 // 5 // FILLERS
"""Four fifths of the NPUs of eight supernodes, by client."""


def measure() -> Iterator[Figure]:
    for figures in (on, filled):
        yield from figures("SQLite", "")
        if has_postgres():
            with a_postgres() as url:
                yield from figures("PostgreSQL", url)


def on(database: str, url: str) -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-bench-")))
        resource = ResourceProcess(folder, *(["--database", url] if url else []))
        stack.callback(resource.kill)
        resource.start()
        with resource.client() as client:
            resource.obey(client)
        host, port = resource.url.removeprefix("http://").split(":")
        asyncio.run(Load(host, int(port)).run(8, WARM_UP_SECONDS))
        for clients in (1, 8, 32, 64):
            load = Load(host, int(port))
            asyncio.run(load.run(clients, SECONDS))
            method = f"{clients} clients for {SECONDS:g} s, {len(load.allocated)} PUTs of one node and as many DELETEs"
            if clients == 1:
                for verb, taken in (("allocation", load.allocated), ("release", load.released)):
                    p50 = statistics.median(taken) * 1000
                    yield Figure(f"durable {verb} through REST, {database}, P50", p50, "ms", method, 5)
            else:
                p50 = statistics.median(load.allocated) * 1000
                rate = len(load.allocated) / SECONDS
                told = f"{method}; P50 of a PUT {p50:.1f} ms"
                name = f"durable allocations through REST, {database}, {clients} clients"
                yield Figure(name, rate, "/s", told, None, 500)


def filled(database: str, url: str) -> Iterator[Figure]:
    """Allocations with no release beside them, and the other way round."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-bench-")))
        resource = ResourceProcess(folder, "--supernodes", "8", *(["--database", url] if url else []))
        stack.callback(resource.kill)
        resource.start()
        with resource.client() as client:
            resource.obey(client)
        host, port = resource.url.removeprefix("http://").split(":")
        load = Load(host, int(port))
        count = FILLERS * EACH
        method = f"{FILLERS} clients, {count} of one NPU on 384 nodes, one after the other by each client"
        for verb, wanted, body in (("PUT", 200, FILLING), ("DELETE", 204, b"")):
            began = time.perf_counter()
            asyncio.run(load.all_of(verb, wanted, body))
            noun = "allocations" if verb == "PUT" else "releases"
            rate = count / (time.perf_counter() - began)
            yield Figure(f"durable {noun} alone, {database}, {FILLERS} clients", rate, "/s", method, None, 500)


@dataclass
class Load:
    """What clients of one service measured, in seconds for each request."""

    host: str
    port: int
    allocated: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)

    async def run(self, clients: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._client(number, ends))

    async def all_of(self, verb: str, wanted: int, body: bytes) -> None:
        """One verb on every allocation of every filling client."""
        async with asyncio.TaskGroup() as group:
            for number in range(FILLERS):
                group.create_task(self._fill(number, verb, wanted, body))

    async def _fill(self, number: int, verb: str, wanted: int, body: bytes) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        for made in range(EACH):
            status, said = await ask(reader, writer, verb, f"/v1/allocations/fill-{number}-{made}", body)
            expect(status, wanted, said)
        writer.close()
        await writer.wait_closed()

    async def _client(self, number: int, ends: float) -> None:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        made = 0
        while time.monotonic() < ends:
            made += 1
            path = f"/v1/allocations/bench-{os.getpid()}-{number}-{made}"
            began = time.perf_counter()
            status, said = await ask(reader, writer, "PUT", path, WISH)
            held = time.perf_counter()
            if status == 409:  # more clients than nodes: who is refused asks again
                continue
            expect(status, 200, said)
            status, said = await ask(reader, writer, "DELETE", path)
            expect(status, 204, said)
            self.allocated.append(held - began)
            self.released.append(time.perf_counter() - held)
        writer.close()
        await writer.wait_closed()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of the answer to one request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, found, rest = answer.partition(b"content-length:")
    length = int(rest.partition(b"\r\n")[0]) if found else 0
    return int(answer[9:12]), await reader.readexactly(length)


def expect(status: int, wanted: int, said: bytes) -> None:
    if status != wanted:
        raise SystemExit(f"{status} instead of {wanted}: {said[:300]!r}")


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
