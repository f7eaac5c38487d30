"""A durable allocation through REST: how long one takes, and how many a second, each on disk before it is acknowledged.

MatrixResource runs as a process of its own over a folder on this disk (SQLite with full sync), then over a PostgreSQL
of the benchmark's own with its usual settings. Clients keep one connection each, ask for one node and release it; both
requests count together as one allocation.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import Figure
from tests.e2e.resource_process import ResourceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, has_postgres

SECONDS = 4.0
WARM_UP = 20


def measure() -> Iterator[Figure]:
    yield from on("SQLite", "")
    if has_postgres():
        with a_postgres() as url:
            yield from on("PostgreSQL", url)


def on(database: str, url: str) -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-bench-")))
        resource = ResourceProcess(folder, *(["--database", url] if url else []))
        stack.callback(resource.kill)
        resource.start()
        with resource.client() as client:
            resource.obey(client)
        run(resource, 1, WARM_UP / 100)
        for clients in (1, 8, 32):
            taken = run(resource, clients, SECONDS)
            method = f"{clients} clients for {SECONDS:g} s; PUT and DELETE of one node, {len(taken)} times"
            if clients == 1:
                p50 = statistics.median(taken) * 1000
                yield Figure(f"durable reserve and release, {database}, P50", p50, "ms", method, 5)
            rate = len(taken) / SECONDS
            yield Figure(f"the same, {clients} clients", rate, "/s", method, None, 500 if clients > 1 else None)


def run(resource: ResourceProcess, clients: int, seconds: float) -> list[float]:
    """The seconds that each reserve with its release took."""
    taken: list[float] = []
    failed: list[str] = []
    ends = time.monotonic() + seconds

    def ask(number: int) -> None:
        with resource.client() as client:
            while time.monotonic() < ends and not failed:
                began = time.perf_counter()
                held = client.put(f"/v1/allocations/bench-{number}", json={"nodes": 1})
                gone = client.delete(f"/v1/allocations/bench-{number}")
                if (held.status_code, gone.status_code) != (200, 204):
                    failed.append(f"{held.status_code} {gone.status_code}: {held.text[:200]} {gone.text[:200]}")
                taken.append(time.perf_counter() - began)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(failed[0])
    return taken


if __name__ == "__main__":
    for figure in measure():
        print(figure.line())
