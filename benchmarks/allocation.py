"""How long the allocator takes to choose and commit, at three sizes, beside best fit over a graph and over arrays.

Requests are seeded: sizes and stays as in the serving and training mixes of the allocation data set, arriving so
fast that the machine is about full. Baselines, in the same run: one node chosen by best fit over the attributes of a
NetworkX graph, and over NumPy arrays, without committing. Times are of this process; a percentile is over all requests.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Iterator

import networkx
import numpy

from benchmarks import Figure
from matrixresource.capacity.ledger import Ledger
from matrixresource.capacity.shape import Shape
from matrixresource.capacity.wishes import Wish

SIZES = {
    "48 nodes": (Shape(1, 12, 4), 4000, 12, 60),
    "1,024 nodes": (Shape(1, 256, 4), 6000, 15, 100),
    "20,736 nodes": (Shape(432, 12, 4), 20000, 20, 300),
}
MIX = ((1, 20), (2, 14), (4, 16), (8, 20), (16, 12), (32, 8), (64, 4), (128, 3), (256, 2), (320, 1))
GANG_NODES = 4000


def measure() -> Iterator[Figure]:
    for name, (shape, requests, p50, p99) in SIZES.items():
        took, rate = churn(shape, requests)
        graph, arrays = by_graph(shape), by_arrays(shape)
        method = f"choose and commit, {requests} seeded requests, machine about full"
        yield Figure(f"decision at {name}, P50", took[len(took) // 2], "us", method, p50)
        yield Figure(f"decision at {name}, P99", took[len(took) * 99 // 100], "us", method, p99)
        yield Figure(
            f"best fit over NetworkX at {name} / ours", graph / took[len(took) // 2], "x", "one node, no commit"
        )
        yield Figure(f"best fit over NumPy at {name} / ours", arrays / took[len(took) // 2], "x", "one node, no commit")
        if shape.supernodes > 1:
            yield Figure("decisions a second at 165,888 NPUs", rate, "/s", "one core, releases included")
        yield Figure(f"index made anew at {name}", rebuilt_ms(shape), "ms", "from who holds what", None)
    yield Figure("a gang of 4,000 nodes", gang_ms(), "ms", "chosen, committed and named on 20,736 nodes", 20)


def wish_of(chance: random.Random, shape: Shape, now: float) -> tuple[Wish, float]:
    sizes, weights = zip(*MIX, strict=True)
    npus = chance.choices(sizes, weights)[0]
    stay = chance.lognormvariate(8.0, 1.2)
    nodes, per = (npus // 8, 8) if npus >= 8 else (1, npus)
    within = chance.choice(["", "", "cabinet" if nodes <= shape.nodes else "supernode"])
    return Wish(min(nodes, shape.of_supernode), per, within, end=now + stay * chance.uniform(1, 3)), stay


def churn(shape: Shape, requests: int) -> tuple[list[float], float]:
    """(microseconds of each decision in order, decisions a second with the releases)."""
    chance = random.Random(7)
    ledger = Ledger(shape)
    mean_stay, mean_npus = 6100.0, 24.0
    gap = mean_stay * mean_npus / (shape.all_nodes * shape.npus)
    leaving: list[tuple[float, str]] = []
    now, took, spent = 0.0, list[float](), 0
    fill = int(mean_stay * 2 / gap) if shape.supernodes == 1 else int(shape.all_nodes * 8 / mean_npus)
    gc.collect()
    gc.disable()
    try:
        for number in range(fill + requests):
            now += chance.expovariate(1 / gap)
            wish, stay = wish_of(chance, shape, now)
            begun = time.perf_counter_ns()
            while leaving and leaving[0][0] <= now:
                ledger.release(heapq.heappop(leaving)[1])
            freed = time.perf_counter_ns()
            place, _ = ledger.allocate(f"r{number}", wish, now)
            done = time.perf_counter_ns()
            if place is not None:
                heapq.heappush(leaving, (now + stay, f"r{number}"))
            if number >= fill:
                took.append((done - freed) / 1000)
                spent += done - begun
    finally:
        gc.enable()
    return sorted(took), requests / (spent / 1e9)


def by_graph(shape: Shape) -> float:
    """Microseconds of best fit for four NPUs over the attributes of a graph's nodes."""
    chance = random.Random(7)
    graph = networkx.Graph()
    graph.add_nodes_from((node, {"free": chance.randint(0, 8)}) for node in range(shape.all_nodes))

    def choose() -> int:
        best, least = -1, 9
        for node, free in graph.nodes(data="free"):
            if 4 <= free < least:
                best, least = node, free
        return best

    return _median_us(choose)


def by_arrays(shape: Shape) -> float:
    """The same over an array."""
    free = numpy.random.default_rng(7).integers(0, 9, shape.all_nodes)

    def choose() -> int:
        return int(numpy.argmin(numpy.where(free >= 4, free, 99)))

    return _median_us(choose)


def _median_us(choose: object) -> float:
    assert callable(choose)
    took = []
    for _ in range(30):
        begun = time.perf_counter_ns()
        choose()
        took.append((time.perf_counter_ns() - begun) / 1000)
    return sorted(took)[15]


def rebuilt_ms(shape: Shape) -> float:
    ledger = Ledger(shape)
    chance = random.Random(3)
    for number in range(shape.all_nodes // 4):
        ledger.allocate(f"r{number}", wish_of(chance, shape, 0.0)[0], 0.0)
    begun = time.perf_counter_ns()
    ledger.rebuilt()
    return (time.perf_counter_ns() - begun) / 1e6


def gang_ms() -> float:
    shape = SIZES["20,736 nodes"][0]
    names = [f"sn{n // 48}-c{n % 48 // 4:02d}-n{n % 4}" for n in range(shape.all_nodes)]
    ledger = Ledger(shape)
    begun = time.perf_counter_ns()
    place, _ = ledger.allocate("gang", Wish(GANG_NODES), 0.0)
    assert place is not None
    named = [names[c * shape.nodes + o] for c, mask in place.whole for o in ledger.index.offsets(mask)]
    assert len(named) == GANG_NODES
    return (time.perf_counter_ns() - begun) / 1e6
