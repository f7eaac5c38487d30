"""The benefit of knowing the whole start time, in simulation: our policy told all of it, and only its last part.

    python -m benchmarks autoscaling_starts
    AUTOSCALING_TRACES=all AUTOSCALING_STARTS=30,150 AUTOSCALING_FIRST=0.5 python -m benchmarks autoscaling_starts

A requested node boots, and then starts the model. CloudMatrix-Infer reports how long the second takes, and
MatrixCompute measures the first. `model's own` is told only the second, `whole` both. The traces, the timing and the
initial pools are those of `python -m benchmarks autoscaling`. If the whole start time is the model's, both are the
same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.autoscaler.baselines import default_policy
from benchmarks.autoscaler.cases import cases
from benchmarks.autoscaler.pools import timing
from benchmarks.autoscaler.replay import replay

QUICK = "sine 15 min,mix shifts,jumps,clients"
METHOD = "engine timing, half-second slots"


def measure() -> Iterator[Figure]:
    lost = 0
    for case in cases(QUICK, "30,150"):
        for what, known_start_s in (("model's own", timing().warm_s), ("whole", None)):
            policy = default_policy(case.block, known_start_s=known_start_s)
            found = replay(case.trace, policy, case.first, case.start_s, changes_roles=True)
            lost += found.lost
            row = f"{found.node_hours:7.1f} node-hours attained {100 * found.attainment:6.2f} %"
            print(f"  {case.label:<40} {what:<11} {row}", file=sys.stderr, flush=True)
            yield Figure(f"node-hours, told of {what}, {case.label}", found.node_hours, "", METHOD)
            yield Figure(f"attainment, told of {what}, {case.label}", 100 * found.attainment, "%", METHOD)
    yield Figure("requests lost on shrinking", lost, "", METHOD, goal_max=0)
