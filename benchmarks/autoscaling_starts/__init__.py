"""What it brings to know how long a start takes, in simulation: our policy told of all of it, and of the last part.

    python -m benchmarks autoscaling_starts
    AUTOSCALING_TRACES=all AUTOSCALING_STARTS=30,150 AUTOSCALING_FIRST=0.5 python -m benchmarks autoscaling_starts

A node that is asked for boots, and then starts the model. CloudMatrix-Infer says how long the second takes,
MatrixCompute measures the first. `model's own` is told of the second alone, `whole` of both. The traces, the timing and
what everybody begins with are those of `python -m benchmarks autoscaling`. Where all of a start is the model's the two
are one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.autoscaler.baselines import ours
from benchmarks.autoscaler.clairvoyant import static_peak
from benchmarks.autoscaler.pools import replay, timing
from benchmarks.autoscaler.traces import SEEDED, TRACES

STARTS_S = [float(each) for each in os.environ.get("AUTOSCALING_STARTS", "30,150").split(",")]
QUICK = "sine 15 min,mix shifts,jumps,clients"
CHOSEN = os.environ.get("AUTOSCALING_TRACES", QUICK)
FIRST = float(os.environ.get("AUTOSCALING_FIRST", "1"))
METHOD = "engine timing, half-second slots"


def measure() -> Iterator[Figure]:
    lost = 0
    for name in TRACES if CHOSEN == "all" else CHOSEN.split(","):
        trace = TRACES[name]()
        sizes = static_peak(trace, 1)
        first = max(1, round(FIRST * sizes[0])), max(1, round(FIRST * sizes[1]))
        for start_s in STARTS_S:
            where = f"{name}, start {start_s:.0f} s{', seeded' if name in SEEDED else ''}"
            for what, known_start_s in (("model's own", timing().warm_s), ("whole", None)):
                found = replay(trace, ours(known_start_s=known_start_s), first, start_s, changes_roles=True)
                lost += found.lost
                row = f"{found.node_hours:7.1f} node-hours attained {100 * found.attainment:6.2f} %"
                print(f"  {where:<40} {what:<11} {row}", file=sys.stderr, flush=True)
                yield Figure(f"node-hours, told of {what}, {where}", found.node_hours, "", METHOD)
                yield Figure(f"attainment, told of {what}, {where}", 100 * found.attainment, "%", METHOD)
    yield Figure("requests lost on shrinking", lost, "", METHOD, goal_most=0)
