"""How fast the engine replays requests in virtual time, on the paper's 256 NPUs.

CPU time around `replay`, reading the trace apart: the Mooncake conversation trace where it lies in CLOUDMATRIX_TRACES
or ../shared/data/llm, and seeded traffic. Requests are as many as finished.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.autoscaler.traces import FOLDER
from infer_workload.experiments.experiment import generated, healthy_fabric, replay
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, read_trace

REQUESTS = 8000
MOONCAKE = FOLDER / "mooncake_conversation_00-40min.jsonl.gz"


def measure() -> Iterator[Figure]:
    if MOONCAKE.exists():
        began = time.process_time()
        arrivals = read_trace(MOONCAKE)
        yield Figure("trace read", time.process_time() - began, "s", f"{len(arrivals):,} requests, {MOONCAKE.name}")
        yield from replayed(MOONCAKE.name, arrivals, 1.2)
    yield from replayed("seeded traffic", generated(REQUESTS, seed=0))
    yield from replayed("seeded traffic, 60 requests/s", generated(REQUESTS, seed=0, requests_per_second=60.0))


def replayed(name: str, arrivals: list[Arrival], goal_s: float | None = None) -> Iterator[Figure]:
    deployment = lay_out(healthy_fabric(32), load_model(), load_calibration())
    began = time.process_time()
    report = replay(deployment, arrivals, name).report
    spent = time.process_time() - began
    method = f"{report.finished:,} requests, {report.duration_s:,.0f} s emulated"
    yield Figure(f"{name}: replay", spent, "s", method, goal_s)
    yield Figure(f"{name}: requests a second of CPU", report.finished / spent, "/s", method)
