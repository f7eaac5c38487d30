"""Time to explain why a request does not fit, what would make it fit, and when it will fit, at three sizes.

The machines are full; the requests are those of the seeded mix that are refused there, some with rules (spread, apart,
spares, gangs of parts). Every answer contains the blocking domains, the smallest change found of every kind, and the
earliest start; at 48 nodes also moves for gangs of up to a cabinet.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.allocator.busy import SHAPES, percentile, run_busy_machine, sample_request, with_constraints
from matrixresource.scheduler import FORM
from matrixresource.scheduler.explain import explain
from matrixresource.scheduler.explain.release_set import fits_empty_cluster
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.request import PlacementRequest

CONSECUTIVE_REFUSALS = 3

# requests before; answers; P99 in ms
GOALS = {"48 nodes": (2000, 1000, 1), "1,024 nodes": (4000, 300, 3), "20,736 nodes": (10000, 150, 50)}


def measure() -> Iterator[Figure]:
    for name, (requests, answers, most) in GOALS.items():
        found = run_busy_machine(SHAPES[name], requests, constrained=True)
        fill_until_refused(found.ledger, found.now)
        took, proven = time_explanations(found.ledger, found.now, answers)
        method = f"{FORM.word}; {answers} refused requests, machine full to the brim"
        yield Figure(f"plan for a refused request at {name}, P50", percentile(took, 50), "ms", method)
        yield Figure(f"plan for a refused request at {name}, P99", percentile(took, 99), "ms", method, most)
        yield Figure(f"cheapest release proven at {name}", proven * 100, "%", "of those named in that time")


def time_explanations(ledger: Ledger, now: float, count: int) -> tuple[list[float], float]:
    """Return (sorted milliseconds of each answer, the share of proposed releases that are proven the cheapest)."""
    rng = random.Random(11)
    took, proven = list[float](), list[bool]()
    refused = generate_refused(ledger, rng, now)
    gc.collect()
    gc.disable()
    try:
        for _ in range(count):
            request = next(refused)
            begun = time.perf_counter_ns()
            reported = explain.explain_placement(ledger, request, now)
            took.append((time.perf_counter_ns() - begun) / 1e6)
            proven += [change.exact for change in reported.suggestions if change.kind == "release"]
    finally:
        gc.enable()
    return sorted(took), sum(proven) / max(1, len(proven))


def fill_until_refused(ledger: Ledger, now: float) -> None:
    """Fill the machine with requests until `CONSECUTIVE_REFUSALS` in a row are refused."""
    rng = random.Random(5)
    refused = number = 0
    while refused < CONSECUTIVE_REFUSALS:
        number += 1
        place, _ = ledger.allocate(f"b{number}", sample_request(rng, ledger.shape, now)[0], now)
        refused = 0 if place is not None else refused + 1


def generate_refused(ledger: Ledger, rng: random.Random, now: float) -> Iterator[PlacementRequest]:
    """Yield requests that would fit on an empty machine but do not fit now."""
    names = sorted(ledger.allocations)
    while True:
        request = with_constraints(rng, sample_request(rng, ledger.shape, now)[0], names)
        if fits_empty_cluster(ledger.shape, request) and ledger.choose(request) is None:
            yield request
