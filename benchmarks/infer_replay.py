"""Speed of the engine's replay of requests in virtual time, on the paper's 256 NPUs.

Measured are the CPU time of `replay` without reading the trace, and that of the whole command in a separate process,
start-up included, the best of three. A fixed loop is timed in the same run, since machines differ and may be busy. The
inputs are the Mooncake conversation trace, if it is in CLOUDMATRIX_TRACES or ../shared/data/llm, and seeded traffic.
Only finished requests are counted.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.autoscaler.traces import FOLDER
from infer_workload.experiments.experiment import generate_arrivals, healthy_fabric, replay
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, read_trace

REQUESTS = 8000
MOONCAKE = FOLDER / "mooncake_conversation_00-40min.jsonl.gz"


LOOP_ITERATIONS = 5_000_000


def measure() -> Iterator[Figure]:
    began = time.process_time()
    total = 0
    for number in range(LOOP_ITERATIONS):
        total += number
    yield Figure(
        "a fixed loop", time.process_time() - began, "s", f"{LOOP_ITERATIONS:,} additions, to set the others against"
    )
    if MOONCAKE.exists():
        began = time.process_time()
        arrivals = read_trace(MOONCAKE)
        yield Figure("trace read", time.process_time() - began, "s", f"{len(arrivals):,} requests, {MOONCAKE.name}")
        yield from measure_replay(MOONCAKE.name, arrivals)
        yield Figure(
            f"{MOONCAKE.name}: the command", min(_command_s() for _ in range(3)), "s",
            f"matrixctl experiment run --trace, {len(arrivals):,} requests, start included, best of three", 1.0,
        )  # fmt: skip
    yield from measure_replay("seeded traffic", generate_arrivals(REQUESTS, seed=0))
    yield from measure_replay(
        "seeded traffic, 60 requests/s", generate_arrivals(REQUESTS, seed=0, requests_per_second=60.0)
    )


def _command_s() -> float:
    """Return the CPU seconds of one replay run as a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "services.matrixctl", "experiment", "run", "--trace", str(MOONCAKE)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_replay(name: str, arrivals: list[Arrival]) -> Iterator[Figure]:
    deployment = lay_out(healthy_fabric(32), load_model(), load_calibration())
    began = time.process_time()
    report = replay(deployment, arrivals, name).report
    spent = time.process_time() - began
    method = f"{report.finished:,} requests, {report.duration_s:,.0f} s emulated"
    yield Figure(f"{name}: replay", spent, "s", method)
    yield Figure(f"{name}: requests a second of CPU", report.finished / spent, "/s", method)
