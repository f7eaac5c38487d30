"""Durable allocations through REST: latency and rate, each allocation on disk before it is acknowledged.

MatrixResource runs as a separate process, on SQLite and on PostgreSQL (`durable.py`). Each client repeatedly requests
one node under a new name and releases it; allocations are counted, with as many releases in between. Then clients fill
a machine of eight supernodes NPU by NPU and empty it again: allocations alone, and releases alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks import Figure
from benchmarks.durable import connect, on_each_database, run_concurrently, run_service
from tests.e2e.resource_process import ResourceProcess

SECONDS = 5.0
WARM_UP_SECONDS = 1.0
SPEC = b'{"nodes":1}'
FILLING, FILLERS = b'{"npus":1}', 32
REQUESTS_EACH = 8 * 384 * 4 // 5 // FILLERS
"""Four fifths of the NPUs of eight supernodes, by client."""


def measure() -> Iterator[Figure]:
    yield from on_each_database(measure_on, measure_filling)


def measure_on(database: str, url: str) -> Iterator[Figure]:
    with run_service(ResourceProcess, url) as resource:
        with resource.client() as client:
            resource.report_fulfilled(client)
        asyncio.run(Load(resource).run(8, WARM_UP_SECONDS))
        for clients in (1, 8, 32, 64):
            load = Load(resource)
            asyncio.run(load.run(clients, SECONDS))
            method = f"{clients} clients for {SECONDS:g} s, {len(load.allocated)} PUTs of one node and as many DELETEs"
            if clients == 1:
                for verb, taken in (("allocation", load.allocated), ("release", load.released)):
                    p50 = statistics.median(taken) * 1000
                    yield Figure(f"durable {verb} through REST, {database}, P50", p50, "ms", method, 5)
            else:
                p50 = statistics.median(load.allocated) * 1000
                rate = len(load.allocated) / SECONDS
                text = f"{method}; P50 of a PUT {p50:.1f} ms"
                name = f"durable allocations, as many releases beside, {database}, {clients} clients"
                yield Figure(name, rate, "/s", text, None, 500)


def measure_filling(database: str, url: str) -> Iterator[Figure]:
    """Measure allocations without releases, and releases without allocations."""
    with run_service(ResourceProcess, url, "--supernodes", "8") as resource:
        with resource.client() as client:
            resource.report_fulfilled(client)
        count = FILLERS * REQUESTS_EACH
        method = f"{FILLERS} clients, {count} of one NPU on 384 nodes, one after the other by each client"
        for verb, wanted, body in (("PUT", 200, FILLING), ("DELETE", 204, b"")):
            began = time.perf_counter()
            asyncio.run(Load(resource).run_all(verb, wanted, body))
            noun = "allocations" if verb == "PUT" else "releases"
            rate = count / (time.perf_counter() - began)
            yield Figure(f"durable {noun} alone, {database}, {FILLERS} clients", rate, "/s", method, None, 500)


@dataclass
class Load:
    """Seconds per request that the clients of one service measured."""

    service: ResourceProcess
    allocated: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)

    async def run(self, clients: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        await run_concurrently(clients, lambda number: self._client(number, ends))

    async def run_all(self, verb: str, wanted: int, body: bytes) -> None:
        """Apply one HTTP method to every allocation of every filling client."""
        await run_concurrently(FILLERS, lambda number: self._fill(number, verb, wanted, body))

    async def _fill(self, number: int, verb: str, wanted: int, body: bytes) -> None:
        async with connect(self.service) as to:
            for made in range(REQUESTS_EACH):
                await to.expect(wanted, verb, f"/v1/allocations/fill-{number}-{made}", body)

    async def _client(self, number: int, ends: float) -> None:
        made = 0
        async with connect(self.service) as to:
            while time.monotonic() < ends:
                made += 1
                path = f"/v1/allocations/bench-{os.getpid()}-{number}-{made}"
                began = time.perf_counter()
                status, reported = await to.request("PUT", path, SPEC)
                current = time.perf_counter()
                if status == 409:  # more clients than nodes: a refused client retries
                    continue
                if status != 200:
                    raise SystemExit(f"PUT {path}: {status}: {reported[:300]!r}")
                await to.expect(204, "DELETE", path)
                self.allocated.append(current - began)
                self.released.append(time.perf_counter() - current)


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
