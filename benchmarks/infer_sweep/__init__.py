"""A sweep of 64 points on Ray: two workers beside one, in the same run.

A cluster of this machine is started for each, so its start and that of its workers are in the time of the whole; beside
it, from the first outcome on, what the points alone take. Wall time says little while others are busy on the machine:
beside it are the CPU seconds of all processes of the cluster, as the kernel counts them when the last point is
there, and of a fixed loop. Needs the extra `ray`, two cores and Linux.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks import Figure
from infer_workload.experiments.sweep import as_csv, axis, on_ray, points_of, sweep

POINTS, REQUESTS = 64, 4000
GOAL = 1.8
LOOP = 5_000_000


def measure() -> Iterator[Figure]:
    try:
        import ray  # noqa: F401
    except ImportError:
        print("not measured: Ray is not installed here (pip install 'cloudmatrix[ray]')", file=sys.stderr)
        return
    walls, alone, tables = {}, {}, set()
    for workers in (1, 2):
        walls[workers], alone[workers], cpu_s, table = _swept(workers)
        tables.add(table)
        method = f"{POINTS} points on {workers} of {os.cpu_count()} cores, Ray's start included; loop {_loop_s():.2f} s"
        yield Figure(f"{workers} worker{'s' if workers > 1 else ''}", walls[workers], "s", method)
        yield Figure(
            f"{workers} worker{'s' if workers > 1 else ''}: points alone", alone[workers], "s", "after the first"
        )
        yield Figure(
            f"{workers} worker{'s' if workers > 1 else ''}: CPU", cpu_s, "s", "of all processes of the cluster"
        )
    assert len(tables) == 1, "the table is the same to the byte"
    yield Figure("two workers over one", walls[1] / walls[2], "times", "the whole", None, GOAL)
    yield Figure("two workers over one: points alone", alone[1] / alone[2], "times", "after the first outcome")


def _loop_s() -> float:
    """CPU seconds of a fixed loop: what the processor gives now."""
    began = time.process_time()
    total = 0
    for number in range(LOOP):
        total += number
    return time.process_time() - began


def _swept(workers: int) -> tuple[float, float, float, str]:
    """Wall seconds of the whole and after the first outcome, CPU seconds, and the table, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.infer_sweep.process", str(workers)],
        check=True,
        capture_output=True,
        text=True,
    )
    first, _, table = ended.stdout.partition("\n")
    whole, alone, cpu_s = (float(number) for number in first.split())
    return whole, alone, cpu_s, table


def swept_here(workers: int) -> None:
    """Print what `_swept` reads."""
    times: list[float] = []
    spent: list[float] = []

    def done(count: int, total: int) -> None:
        times.append(time.perf_counter())
        if count == total:
            spent.append(_descendants_s())

    points = points_of({"generate": REQUESTS, "nodes": 16}, [axis(f"seed=1:{POINTS}")])
    began = time.perf_counter()
    found = sweep(points, on_ray("local", workers), done)
    whole = time.perf_counter() - began
    alone = (times[-1] - times[1]) * POINTS / (POINTS - 1)
    print(whole, alone, spent[0] + time.process_time())
    print(as_csv(found), end="")


def _descendants_s() -> float:
    """CPU seconds of all processes that this one started, and they."""
    tick, parents, spent = os.sysconf("SC_CLK_TCK"), dict[int, int](), dict[int, float]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            number = int(entry.parent.name)
            parents[number], spent[number] = int(fields[1]), sum(int(each) for each in fields[11:15]) / tick
    mine = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(spent.get(each, 0.0) for each in mine - {os.getpid()})
