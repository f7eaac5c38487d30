"""How fast the engine replays requests in virtual time.

    python benchmarks/infer_replay.py [--trace FILE] [--requests N]

Prints requests a CPU second on the paper's 256 NPUs: for a trace in the Mooncake format when one is given, and for
seeded traffic of the same shape. The method is process time around `replay`; reading the trace is shown apart.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from infer_workload.experiments.experiment import generated, healthy_fabric, replay
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, read_trace


def measure(name: str, arrivals: list[Arrival]) -> None:
    deployment = lay_out(healthy_fabric(32), load_model(), load_calibration())
    began = time.process_time()
    report = replay(deployment, arrivals, name)
    spent = time.process_time() - began
    print(
        f"{name}: {report.finished:,} requests, {report.duration_s:,.0f} s emulated in {spent:.2f} CPU s: "
        f"{report.finished / spent:,.0f} requests/s, {report.duration_s / spent:,.0f} times real time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the engine replays requests.")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--requests", type=int, default=8000)
    given = parser.parse_args()
    if given.trace:
        began = time.process_time()
        arrivals = read_trace(given.trace)
        print(f"read {len(arrivals):,} requests in {time.process_time() - began:.2f} CPU s")
        measure(given.trace.name, arrivals)
    measure("seeded traffic", generated(given.requests, seed=0))
    measure("seeded traffic, 60 requests/s", generated(given.requests, seed=0, requests_per_second=60.0))


if __name__ == "__main__":
    main()
