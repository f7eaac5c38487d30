"""A sweep of 64 points on Ray at an address: two workers compared with one, in the same run.

For each, a Ray cluster on this machine is started first and runs a task, and its address is given as with `matrixctl
experiment sweep --ray`; its start-up time is shown separately. The whole time runs from the first contact with the
cluster to the last, including the start of its workers; beside it, the time of the points alone, from the first result
on. Wall time says little on a busy machine, so two more figures are shown: the CPU seconds of all of the cluster's
processes, as the kernel counts them when the last point is done, and of a fixed loop; and the speed-up of two processes
over one on that loop alone, which no sweep can exceed. Needs the extra `ray`, two cores and Linux.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from benchmarks import Figure
from infer_workload.experiments.ray_cluster import ray_runner
from infer_workload.experiments.sweep import expand_points, parse_axis, sweep, to_csv
from services.matrixctl.supervisor.probe import free_port

POINTS, REQUESTS = 64, 7851  # as many requests as the Mooncake trace of an hour has
GOAL = 1.8
LOOP_ITERATIONS, LOOPS = 5_000_000, 40
START_S_MAX = 60


def measure() -> Iterator[Figure]:
    try:
        import ray  # noqa: F401
    except ImportError:
        print("not measured: Ray is not installed here (pip install 'cloudmatrix[ray]')", file=sys.stderr)
        return
    walls, alone, tables = {}, {}, set()
    for workers in (1, 2):
        start, walls[workers], alone[workers], cpu_s, table = _run_sweep(workers)
        tables.add(table)
        named = f"{workers} worker{'s' if workers > 1 else ''}"
        method = f"{POINTS} points on {workers} of {os.cpu_count()} cores; loop {_loop_s():.2f} s"
        yield Figure(named, walls[workers], "s", method)
        yield Figure(f"{named}: points alone", alone[workers], "s", "after the first")
        yield Figure(f"{named}: CPU", cpu_s, "s", "of all processes of the cluster, its start included")
        yield Figure(f"{named}: the cluster's start", start, "s", "before the sweep, until it answers")
    assert len(tables) == 1, "the table is the same to the byte"
    yield Figure("two workers over one", walls[1] / walls[2], "times", "the whole sweep", None, GOAL)
    yield Figure("two workers over one: points alone", alone[1] / alone[2], "times", "after the first outcome")
    method = f"{LOOPS} fixed loops by one process, then by two, right after: all that two cores give here now"
    yield Figure("two processes over one: a fixed loop", _loops_s(1) / _loops_s(2), "times", method)


def _loop_s() -> float:
    """The CPU seconds of a fixed loop, as a measure of the processor's present speed."""
    began = time.process_time()
    total = 0
    for number in range(LOOP_ITERATIONS):
        total += number
    return time.process_time() - began


def _loops_s(processes: int) -> float:
    """The wall seconds of the fixed loops, distributed over that many processes that have started before."""
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(abs, range(processes)))
        began = time.perf_counter()
        for each in [pool.submit(_loop_s) for _ in range(LOOPS)]:
            each.result()
        return time.perf_counter() - began


def _run_sweep(workers: int) -> tuple[float, float, float, float, str]:
    """Run a sweep in a separate process. Returns the wall seconds of the cluster's start, of the sweep, and of its
    points alone, the CPU seconds, and the table."""
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.infer_sweep.process", str(workers)],
        check=True,
        capture_output=True,
        text=True,
    )
    first, _, table = ended.stdout.partition("\n")
    start, whole, alone, cpu_s = (float(number) for number in first.split())
    return start, whole, alone, cpu_s, table


def sweep_locally(workers: int) -> None:
    """Run a sweep in this process, and print the output that `_run_sweep` parses."""
    times: list[float] = []
    spent: list[float] = []

    def done(count: int, total: int) -> None:
        times.append(time.perf_counter())
        if count == total:
            spent.append(_descendants_s())

    points = expand_points({"generate": REQUESTS, "nodes": 16}, [parse_axis(f"seed=1:{POINTS}")])
    began = time.perf_counter()
    with _cluster(workers) as address:
        runner = ray_runner(address)  # imports Ray, which counts as start-up of this process
        started = time.perf_counter()
        found = sweep(points, runner, done)
        whole = time.perf_counter() - started
    alone = (times[-1] - times[1]) * POINTS / (POINTS - 1)
    print(started - began, whole, alone, spent[0] + time.process_time())
    print(to_csv(found), end="")


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """Start a Ray cluster with that many workers on this machine, and yield its address once it answers."""
    began = time.perf_counter()
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}  # Ray authenticates clients at an address
    where = ["--head", "--block", f"--port={address.partition(':')[2]}", "--node-ip-address=127.0.0.1"]
    what = [f"--num-cpus={workers}", "--include-dashboard=false", "--disable-usage-stats"]
    head = _run_code("from ray.scripts.scripts import main; main()", "start", *where, *what)
    try:
        while _run_code(f"import ray; ray.init({address!r}); ray.get(ray.remote(lambda: 0).remote())").wait():
            if head.poll() is not None:
                raise RuntimeError(f"the Ray cluster ended with {head.returncode} before it answered")
            if time.perf_counter() - began > START_S_MAX:
                raise TimeoutError(f"the Ray cluster did not answer within {START_S_MAX} s")
        yield address
    finally:
        head.terminate()
        head.wait()


def _run_code(code: str, *words: str) -> subprocess.Popen[bytes]:
    silent = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-c", code, *words], stdout=silent, stderr=silent)


def _descendants_s() -> float:
    """The CPU seconds of all descendants of this process."""
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
