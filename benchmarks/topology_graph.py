"""The machine as a NetworkX graph down to the NPU, and the index of free capacity rebuilt from it, at three sizes.

The largest is built in a separate process, whose memory is that of the graph and the index plus interpreter and
library. The graph is of a machine about half allocated to seeded requests.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.allocator.busy import SHAPES, sample_request
from benchmarks.allocator.capacity_graph import annotate, graph_of, index_of
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape

INDEX_MS = {"48 nodes": 1, "1,024 nodes": 10, "20,736 nodes": 200}
TRIES = 5


def measure() -> Iterator[Figure]:
    for name, goal_ms in INDEX_MS.items():
        shape = SHAPES[name]
        yield Figure(f"index from the graph at {name}", index_ms(shape), "ms", f"median of {TRIES}", goal_ms)
    largest = SHAPES["20,736 nodes"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, mb = pool.apply(graph_build_cost, (largest,))
    method = "165,888 NPUs, who holds what written in, in a process of its own"
    yield Figure("graph and index of 20,736 nodes", seconds, "s", method, 3)
    yield Figure("graph and index of 20,736 nodes, memory", mb, "MB", "most the process ever had", 400)


def index_ms(shape: ClusterShape) -> float:
    """Return the milliseconds to build the index from a graph of this shape."""
    graph, ledger = graph_of(shape), fill_half(shape)
    annotate(graph, ledger)
    took = []
    for _ in range(TRIES):
        begun = time.perf_counter_ns()
        index = index_of(graph)
        took.append((time.perf_counter_ns() - begun) / 1e6)
    assert index.state() == ledger.index.state()
    return sorted(took)[TRIES // 2]


def graph_build_cost(shape: ClusterShape) -> tuple[float, float]:
    """Return (seconds for graph, annotations and index; peak memory of this process in MB)."""
    ledger = fill_half(shape)
    begun = time.perf_counter()
    graph = graph_of(shape)
    annotate(graph, ledger)
    index_of(graph)
    return time.perf_counter() - begun, peak_mb()


def fill_half(shape: ClusterShape) -> Ledger:
    ledger, rng = Ledger(shape), random.Random(3)
    for number in range(shape.all_nodes // 6):
        ledger.allocate(f"r{number}", sample_request(rng, shape, 0.0)[0], 0.0)
    return ledger


def peak_mb() -> float:
    """Return this process's own peak memory; on Linux, getrusage may report the parent's."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = most // 1024 if sys.platform == "darwin" else most
    return kib * 1024 / 1e6
