"""A durable admission through REST: how long one takes, and how many a second, each on disk before it is acknowledged.

MatrixLink runs as a process of its own over a folder on this disk (SQLite with full sync), then over a PostgreSQL of
the benchmark's own with its usual settings. Clients keep one connection each, have a slice of four nodes admitted on
the UB plane with a floor and protection against any L2 chip, and withdraw it. The fabric has four supernodes; 32 other
slices stay admitted meanwhile on nodes of their own. Both requests count together as one admission, in `the same,
requests` each as one. The last figure is that of slices that share their nodes with two others: their views change too.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import Figure
from matrixresource.topology import Supernode
from tests.e2e.resource_process import ResourceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, has_postgres

SECONDS = 4.0
WARM_UP_S = 0.3
NODES = [node for sn in range(4) for node in Supernode(f"sn{sn}").nodes()]
OWN = NODES[:128]
"""Nodes of the clients, four each; the others' are the rest."""


class LinkProcess(ResourceProcess):
    service = "link"


def measure() -> Iterator[Figure]:
    yield from on("SQLite", "")
    if has_postgres():
        with a_postgres() as url:
            yield from on("PostgreSQL", url)


def on(database: str, url: str) -> Iterator[Figure]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-bench-")))
        link = LinkProcess(folder, "--supernodes", "4", *(["--database", url] if url else []))
        stack.callback(link.kill)
        link.start()
        with link.client() as client:
            for at in range(32):
                wish = a_wish(f"other-{at}", NODES[128 + 2 * at : 130 + 2 * at], 40.0)
                answer = client.put(f"/v1/slices/other-{at}", json=wish)
                assert answer.status_code == 200, answer.text
        run(link, 1, WARM_UP_S)
        for clients in (1, 8, 32):
            taken = run(link, clients, SECONDS)
            method = f"{clients} clients for {SECONDS:g} s; PUT and DELETE of a slice of four nodes, {len(taken)} times"
            if clients == 1:
                p50 = statistics.median(taken) * 1000
                yield Figure(f"durable admit and withdraw, {database}, P50", p50, "ms", method)
            rate = len(taken) / SECONDS
            yield Figure(f"the same, {clients} clients", rate, "/s", method, None, 500 if clients > 1 else None)
            yield Figure("the same, requests", 2 * rate, "/s", "each PUT and each DELETE counted")
        with link.client() as client:
            for at in range(64):
                wish = a_wish(f"shared-{at}", OWN[2 * at : 2 * at + 2], 40.0)
                assert client.put(f"/v1/slices/shared-{at}", json=wish).status_code == 200
        taken = run(link, 8, SECONDS)
        yield Figure(
            "the same on shared nodes, 8 clients", len(taken) / SECONDS, "/s", "two other slices' views change"
        )


def a_wish(name: str, members: list[str], floor: float) -> dict[str, Any]:
    return {
        "allocation": name, "instance": name, "plane": "ub", "members": members, "qosClass": "Guaranteed",
        "floorGbpsPerNpu": floor, "protection": "anyL2Chip",
    }  # fmt: skip


def run(link: ResourceProcess, clients: int, seconds: float) -> list[float]:
    """The seconds that each admission with its withdrawal took."""
    taken: list[float] = []
    failed: list[str] = []
    ends = time.monotonic() + seconds

    def ask(number: int) -> None:
        wish = a_wish(f"bench-{number}", OWN[number * 4 : number * 4 + 4], 20.0)
        with link.client() as client:
            while time.monotonic() < ends and not failed:
                began = time.perf_counter()
                held = client.put(f"/v1/slices/bench-{number}", json=wish)
                gone = client.delete(f"/v1/slices/bench-{number}")
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
