"""Bandwidth sharing in the fabric: single solves, runs to completion, single changes; with the C kernel and without it.

The traffic is that of `benchmarks.fabric_traffic.collectives`. Arrays are built before timing starts, and compilation
is excluded. Hashed traffic puts each pair as a whole on a random sub-plane and L2 chip. Sizes are uniform from 1 to 20
KB. The figures for comparison, measured on the same class of machine, are SimGrid 4.1's.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import Figure
from benchmarks.fabric_traffic.collectives import CollectiveStep, all_to_all
from benchmarks.fabric_traffic.completion import CompletionTimes, run
from benchmarks.fabric_traffic.incremental import IncrementalMaxMin
from benchmarks.fabric_traffic.ub_paths import UbPaths
from benchmarks.topology_graph import peak_mb
from matrixlink.fabric.sharing.max_min_arrays import fair_rates
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.fabric.sharing.rates import compute_rates
from matrixlink.fabric.sharing.traffic import Traffic

TRIES = 5
CHANGES = 2000


def measure() -> Iterator[Figure]:
    how = "kernel in C" if load_kernel() else "arrays: no C compiler here"
    yield from solves(how)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, mb = pool.apply(run_dispatch)
    yield Figure("714,560 flows to the end (EP320 striped)", seconds, "s", "one solve, arrays; SimGrid 4.16 s", 0.5)
    yield Figure("714,560 flows to the end, memory", mb, "MB", "most of a process of its own; SimGrid 1,670", 500)
    made = UbPaths.for_nodes(20).hashed(all_to_all(range(320), 7168)[0], 1)
    took, done = median(lambda: run(made))
    yield Figure("102,080 flows to the end (EP320 ECMP)", took, "s", f"{done.method}, {how}; SimGrid 69.8 s", 0.1)
    yield from run_unequal_sizes(how)
    yield from single_changes(how)


def solves(how: str) -> Iterator[Figure]:
    rng = np.random.default_rng(1)
    turned = np.roll(rng.permutation(384), 1)
    dies = np.arange(768)
    permutation = UbPaths.for_nodes(48).striped(CollectiveStep(dies, 2 * turned[dies // 2] + dies % 2, 28e6))
    ecmp = UbPaths.for_nodes(20).hashed(all_to_all(range(320), 7168)[0], 1)
    for name, made, goal, peer in (
        ("5,376 flows (permutation)", permutation, 3, "47 ms"), ("102,080 flows (EP320 ECMP)", ecmp, 60, "570 ms"),
    ):  # fmt: skip
        took, _ = median(lambda made=made: compute_rates(made))  # type: ignore[misc]
        yield Figure(f"max-min solve, {name}", took * 1e3, "ms", f"{how}, median of {TRIES}; SimGrid {peer}", goal)
        took, _ = median(lambda made=made: fair_rates(made))  # type: ignore[misc]
        yield Figure(f"the same over arrays alone, {name}", took * 1e3, "ms", f"NumPy, median of {TRIES}")


def run_dispatch() -> tuple[float, float]:
    """Return (seconds, peak memory in MB) of the striped dispatch in this process. Its makespan is checked against the
    ports' rate."""
    made = UbPaths.for_nodes(20).striped(all_to_all(range(320), 7168)[0])
    took, done = median(lambda: run(made), 3)
    assert abs(done.makespan / (319 * 7168 / 196) - 1) < 1e-9
    return took, peak_mb()


def run_unequal_sizes(how: str) -> Iterator[Figure]:
    made = with_sizes(UbPaths.for_nodes(7).hashed(all_to_all(range(112), 1)[0], 1))
    if not load_kernel():  # a solve of everything per completion: minutes, and no goal of the arrays
        made = with_sizes(UbPaths.for_nodes(2).hashed(all_to_all(range(32), 1)[0], 1))
    flows = f"{len(made):,}"
    took, exact = median(lambda: run(made), 3)
    method = f"exact, {exact.rate_solves:,} solves, {how}; SimGrid 5.15 s"
    yield Figure(f"{flows} flows of unequal sizes to the end", took, "s", method, 2.5)
    took, rough = median(lambda: run(made, exact.makespan * 0.006), 3)
    error = float(np.abs(rough.at / exact.at - 1).mean()) * 100
    yield Figure(
        f"{flows} flows in windows of 0.6 % of the run", took, "s", f"{rough.rate_solves:,} solves, {how}", 0.5
    )
    yield Figure("the same, mean error of a flow's end", error, "%", "against the exact run", 0.2)


def with_sizes(made: Traffic) -> Traffic:
    return dataclasses.replace(made, size=np.random.default_rng(2).uniform(1e3, 2e4, len(made)))


def single_changes(how: str) -> Iterator[Figure]:
    """Time alternating departures and arrivals among 4,000 flows of an all-to-all of 64 dies."""
    made = UbPaths.for_nodes(4).hashed(all_to_all(range(64), 1)[0], 1)
    paths = [made.links[a:b].tolist() for a, b in zip(made.starts[:4000], made.starts[1:4001], strict=True)]
    shares = IncrementalMaxMin(made.capacity, 4001, 4)
    current = {shares.add(path)[0]: path for path in paths}
    rng, arrivals, departures = random.Random(4), [], []
    for _ in range(CHANGES if load_kernel() else CHANGES // 100):
        flow = rng.choice(list(current))
        path = current.pop(flow)
        begun = time.perf_counter_ns()
        shares.remove(flow)
        gone = time.perf_counter_ns()
        fresh, _ = shares.add(path)
        arrivals.append(time.perf_counter_ns() - gone)
        departures.append(gone - begun)
        current[fresh] = path
    for name, took in (("completion", departures), ("arrival", arrivals)):
        mean = sum(took) / len(took) / 1e6
        yield Figure(
            f"one {name} among 4,000 live flows", mean, "ms", f"mean of {len(took)}, {how}; SimGrid 0.09", 0.05
        )


def median(action: Callable[[], Any], tries: int = TRIES) -> tuple[float, CompletionTimes | Any]:
    """Return the median seconds of the tries, after a warm-up, and the result of the last."""
    took, result = [], action()
    for _ in range(tries):
        begun = time.perf_counter()
        result = action()
        took.append(time.perf_counter() - begun)
    return sorted(took)[tries // 2], result
