"""Busy machines for the allocation figures: seeded requests that arrive fast enough to keep a machine nearly full.

Sizes and durations are those of the serving and training mixes of the allocation data set. With `constrained`, requests
also ask for spares or are gangs of parts of nodes, and nodes fail and recover.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from dataclasses import dataclass, field

from benchmarks.allocator.ledger_verbs import allocations_on
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, PlacementRequest

SHAPES = {
    "48 nodes": ClusterShape(1, 12, 4),
    "1,024 nodes": ClusterShape(1, 256, 4),
    "20,736 nodes": ClusterShape(432, 12, 4),
}
MIX = ((1, 20), (2, 14), (4, 16), (8, 20), (16, 12), (32, 8), (64, 4), (128, 3), (256, 2), (320, 1))
STAY_S, NPUS = 6100.0, 24.0  # means of the above
FAIL_EVERY = 100  # requests


@dataclass
class BusyMachine:
    """A machine after its requests. `decision_us`: microseconds of each decision, sorted. `failures`: the same for each
    failed node. `rate`: decisions per second, releases included.

    There are too few failures for a percentile that is robust against other processes on the host, so they are measured
    in the thread's CPU time.
    """

    ledger: Ledger
    now: float = 0.0
    decision_us: list[float] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)
    rate: float = 0.0


def sample_request(rng: random.Random, shape: ClusterShape, now: float) -> tuple[PlacementRequest, float]:
    """A request without rules, and how long it stays (s); its lease is one to three times as long."""
    sizes, weights = zip(*MIX, strict=True)
    npus = rng.choices(sizes, weights)[0]
    stay = rng.lognormvariate(8.0, 1.2)
    nodes, per = (npus // 8, 8) if npus >= 8 else (1, npus)
    within = rng.choice(["", "", "cabinet" if nodes <= shape.nodes else "supernode"])
    return PlacementRequest(
        min(nodes, shape.nodes_per_supernode), per, within, lease_end=now + stay * rng.uniform(1, 3)
    ), stay


def with_constraints(rng: random.Random, request: PlacementRequest, names: list[str]) -> PlacementRequest:
    """Give one request in six spares, and make one in six a gang of partial nodes. If there are `names`, one in six is
    spread over cabinets, and one in six kept apart from two of them."""
    end, kind = request.lease_end, rng.randrange(6)
    if kind == 0:
        return PlacementRequest(request.nodes, 8, request.required_domain, spares=rng.choice([1, 2]), lease_end=end)
    if kind == 1:
        return PlacementRequest(rng.randint(2, 8), rng.choice([2, 4]), "supernode", lease_end=end)
    if kind == 2 and names:
        return PlacementRequest(
            rng.randint(2, 8),
            8,
            "supernode",
            spread=DomainConstraint("cabinet", rng.choice([1, 2])),
            lease_end=end,
        )
    if kind == 3 and names:
        others = tuple(rng.sample(names, min(2, len(names))))
        return PlacementRequest(
            request.nodes,
            8,
            request.required_domain,
            anti_affinity=DomainConstraint("cabinet", 0, others),
            lease_end=end,
        )
    return request


def run_busy_machine(shape: ClusterShape, requests: int, *, constrained: bool = False) -> BusyMachine:
    """Fill the machine, and measure that many requests afterwards."""
    rng = random.Random(7)
    found = BusyMachine(Ledger(shape))
    ledger, leaving, down = found.ledger, list[tuple[float, str]](), list[int]()
    gap = STAY_S * NPUS / (shape.all_nodes * shape.npus)
    fill = int(STAY_S * 2 / gap) if shape.supernodes == 1 else int(shape.all_nodes * 8 / NPUS)
    spent = 0
    gc.collect()
    gc.disable()
    try:
        for number in range(fill + requests):
            found.now = now = found.now + rng.expovariate(1 / gap)
            request, stay = sample_request(rng, shape, now)
            if constrained:
                request = with_constraints(rng, request, [])
            name = f"r{number}"
            begun = time.perf_counter_ns()
            while leaving and leaving[0][0] <= now:
                gone = heapq.heappop(leaving)[1]
                if gone in ledger.allocations:
                    ledger.release(gone)
            freed = time.perf_counter_ns()
            place, _ = ledger.allocate(name, request, now)
            done = time.perf_counter_ns()
            if place is not None:
                heapq.heappush(leaving, (now + stay, name))
            if number >= fill:
                found.decision_us.append((done - freed) / 1000)
                spent += done - begun
            if constrained and number % FAIL_EVERY == 0:
                down.append(rng.randrange(shape.all_nodes))
                begun = time.thread_time_ns()
                fail_node(ledger, down[-1])
                found.failures.append((time.thread_time_ns() - begun) / 1000)
                if len(down) > max(1, shape.all_nodes // 200):
                    ledger.set_up(down.pop(0), True)
    finally:
        gc.enable()
    found.decision_us.sort()
    found.failures.sort()
    found.rate = requests / (spent / 1e9)
    return found


def fail_node(ledger: Ledger, node: int) -> None:
    """Handle a lost node as the service does: nothing is placed there, and each allocation on it fails over to other
    nodes, or is released if there are none."""
    ledger.set_up(node, False)
    for name in allocations_on(ledger, node):
        if ledger.fail_over(name, node) is None:
            ledger.release(name)


def percentile(ordered: list[float], share: int) -> float:
    """The percentile `share` of sorted values."""
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)]
