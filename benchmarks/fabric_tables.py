"""Forwarding tables of the UB plane: building, loss of a part, rerouting of live flows, planned routes, quality.

The supernode's plane has 448 chips with 430,080 entries in seven sub-planes; 8,448 NPUs are 22 supernodes joined by
third-level chips in one sub-plane, 1,664 chips with 35 million entries. Live flows are a random permutation of the
dies, striped over the sub-planes. Times are medians. A loss is timed from the event to the tables, the list of changed
entries, the list of changed flows and the rates; its repair is not timed. The figures for comparison, measured on the
same class of machine, are OpenSM's on ibsim: routing alone, without discovery and table writes, where stated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import Figure
from benchmarks.fabric_traffic.element_events import lost, recovered
from benchmarks.fabric_traffic.table_quality import (
    all_to_all_factor,
    all_to_all_slowdown,
    pattern_rates,
    permutations,
    shifts,
)
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.forwarding.clos_shape import ClosShape
from matrixlink.forwarding.element_state import ElementEvent, ElementState
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.live_flows import LiveFlows
from matrixlink.forwarding.matchings import matchings
from matrixlink.forwarding.path_policies import ECMP, PLANNED, SPRAY, STATIC, Transfers

TRIES = 15
CABLES_CUT_SHARE = 0.05
"""Share of all cables that is cut when tables are built around damage."""

CHIP, CABLE = ("l2", 0, 0, 3), ("cable", 0, 5, 3)
PODS = ClosShape(sub_planes=1, supernodes=22, spines=16)


def measure() -> Iterator[Figure]:
    yield from measure_supernode()
    yield from measure_pods()
    yield from time_planned_routes()
    yield from measure_quality()


def measure_supernode() -> Iterator[Figure]:
    shape, condition = ClosShape(), ElementState(ClosShape())
    cut = np.random.default_rng(1).random(shape.sizes["cable"]) < CABLES_CUT_SHARE
    condition.share["cable"][cut] = 0.0
    took = median(lambda: ForwardingTables(shape))
    yield Figure("all tables of the supernode's UB plane", took, "ms", "OpenSM 12 ms a sub-plane, 2.5 s joined", 10)
    took = median(lambda: ForwardingTables(shape, condition))
    yield Figure(f"the same with {cut.sum()} cables cut", took, "ms", f"median of {TRIES}", 10)
    how = "kernel in C" if load_kernel() else "arrays: no C compiler here"
    for name, element, peer in (("L2 chip", CHIP, "0.25 s; joined 1.9 s"), ("cable", CABLE, "0.10 s; joined 1.3 s")):
        yield time_loss(f"{name} lost: tables, changes, 5,376 flows", shape, element, 5, f"{how}; OpenSM {peer}")


def measure_pods() -> Iterator[Figure]:
    yield Figure("all tables for 8,448 NPUs", median(lambda: ForwardingTables(PODS), 3), "ms", "OpenSM 25-40 s", 300)
    peer = "16,896 flows re-rated; OpenSM 27-29 s"
    yield time_loss("8,448 NPUs, L2 chip lost: tables and changes", PODS, CHIP, 100, peer)
    yield time_loss("8,448 NPUs, cable lost: tables and changes", PODS, CABLE, 100, "OpenSM 22-27 s")


def time_loss(name: str, shape: ClosShape, element: tuple[str, int, int, int], goal: float, peer: str) -> Figure:
    """Measure the milliseconds from an event to all of its consequences. The method states what changed."""
    tables = ForwardingTables(shape)
    flows = LiveFlows(tables)
    flows.put({"permutation": Transfers.of(shape, *permutations(shape, 1, 1)[0])})
    took = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        change = tables.take([lost(*element)])
        followed = flows.take(change)
        took.append((time.perf_counter() - begun) * 1e3)
        flows.take(tables.take([recovered(*element)]))
    text = f"{len(change):,} entries, {len(followed.repathed)} paths, {len(followed.rerated)} rates; {peer}"
    return Figure(name, sorted(took)[TRIES // 2], "ms", text, goal)


def time_planned_routes() -> Iterator[Figure]:
    shape = ClosShape()
    source, target = permutations(shape, 1, 1)[0]
    took = median(lambda: matchings(source // shape.ends, target // shape.ends, shape.chips))
    yield Figure("plan of a permutation of 768 dies", took, "ms", "16 matchings, over arrays", 5)


def measure_quality() -> Iterator[Figure]:
    shape = ClosShape()
    drawn, turned = permutations(shape, 1, 60), shifts(shape, 59)
    whole, chip, cable = tables_after(), tables_after(lost(*CHIP)), tables_after(lost(*CABLE))
    yield Figure("all-to-all factor, whole", all_to_all_factor(whole, 0), "", "OpenSM 1.00, its dfsssp 1.49")
    for name, tables in (("L2 chip", chip), ("cable", cable)):
        factor = all_to_all_factor(tables, 0)
        yield Figure(f"the same after a lost {name}, spread", factor, "", "every OpenSM engine 2.00", 1.10)
        yield Figure(
            f"the same over all sub-planes, re-weighed (lost {name})", all_to_all_slowdown(tables), "", "", 1.02
        )
    for policy, peer, goal in (
        (STATIC, "OpenSM ftree 18.49, minhop 16.89", 18.4), (PLANNED, "", 28.0),
        (ECMP, "hashed tables 14.62", None), (SPRAY, "", None),
    ):  # fmt: skip
        rates = pattern_rates(whole, 0, drawn, policy)
        text = f"mean of 60, slowest flow {rates.slowest:.2f}; {peer}"
        yield Figure(f"random permutation, {policy}", rates.mean, "GB/s", text, goal_min=goal)
    for name, tables, peer in (("whole", whole, "28.00"), ("after a lost L2 chip", chip, "26.34")):
        rates = pattern_rates(tables, 0, turned)
        text = f"mean of 59, worst {rates.worst_mean:.2f}; OpenSM ftree {peer}"
        yield Figure(f"shift of all dies, static, {name}", rates.mean, "GB/s", text)
    rates = pattern_rates(chip, 0, drawn)
    yield Figure("random permutation, static, after a lost L2 chip", rates.mean, "GB/s", "OpenSM ftree 17.62")


def tables_after(*events: ElementEvent) -> ForwardingTables:
    tables = ForwardingTables(ClosShape())
    tables.take(events)
    return tables


def median(action: Callable[[], object], tries: int = TRIES) -> float:
    """Return the median milliseconds of the tries, after a warm-up."""
    action()
    took = []
    for _ in range(tries):
        begun = time.perf_counter()
        action()
        took.append((time.perf_counter() - begun) * 1e3)
    return sorted(took)[tries // 2]
