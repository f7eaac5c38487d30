"""Autoscaling judged in simulation: our policy, peers' formulas and a plan that knows the trace, open loop.

    python -m benchmarks autoscaling
    AUTOSCALING_STARTS=0,10,30,60,120,300 AUTOSCALING_BLOCKS=2,4 python -m benchmarks autoscaling

One row for each trace, start time, block and policy goes to standard error; a policy under 99 % of the static peak's
goodput gets no score. The figures that have goals follow.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks import Figure
from benchmarks.autoscaler.baselines import BASELINES, ours
from benchmarks.autoscaler.clairvoyant import clairvoyant, constant, needs, static_peak
from benchmarks.autoscaler.pools import Outcome, replay
from benchmarks.autoscaler.traces import TRACES

STARTS_S = [float(each) for each in os.environ.get("AUTOSCALING_STARTS", "60,120").split(",")]
BLOCKS = [int(each) for each in os.environ.get("AUTOSCALING_BLOCKS", "2").split(",")]
CHOSEN = os.environ.get("AUTOSCALING_TRACES", "")
SCORED = 0.99
METHOD = "engine timing, half-second slots, one policy for every trace"


def measure() -> Iterator[Figure]:
    regrets: dict[str, float] = {}
    against: dict[str, float] = {}
    attained: dict[str, float] = {}
    spent_s, lost = 0.0, 0
    for name, make in TRACES.items():
        if CHOSEN and name not in CHOSEN.split(","):
            continue
        trace = make()
        for block in BLOCKS:
            sizes = static_peak(trace, max(1, block // 2))
            peak = constant(trace, *sizes)
            first = tuple(max(1, int(np.ceil(need[:24].max() * 1.2))) for need in needs(trace, peak))
            for start_s in STARTS_S:
                best = clairvoyant(trace, peak, start_s, max(1, block // 2))
                where = f"{name}, start {start_s:.0f} s, block {block}"
                _row(where, "clairvoyant", best, best, peak)
                _row(where, "static peak", peak, best, peak)
                scored = [peak.node_hours]
                for baseline, (tick_s, fresh) in BASELINES.items():
                    found = replay(trace, fresh(block), first, start_s, tick_s)
                    if _row(where, baseline, found, best, peak):
                        scored.append(found.node_hours)
                began = time.process_time()
                own = replay(trace, ours(block), first, start_s)
                spent_s = max(spent_s, (time.process_time() - began) * 3600 / trace.seconds)
                lost += own.lost
                _row(where, "ours", own, best, peak)
                if start_s <= 60:
                    regrets[where] = own.node_hours / best.node_hours
                    attained[where] = own.attainment
                    against[where] = 1 - own.node_hours / min(scored)
                if name == "sine 1-24":
                    yield Figure(f"goodput of {where}", 100 * own.attainment, "%", METHOD, goal_least=95)
                if name == "constant":
                    settled = sum(at > trace.seconds / 3 for role in own.roles for at, _ in role.changes)
                    yield Figure(f"changes after settling, {where}", settled, "", METHOD, goal_most=0)
                if start_s == 120:
                    late = float(np.quantile(own.ttft_s - np.maximum(5.0, 2 * own.alone_s), 0.9))
                    yield Figure(f"P90 TTFT over the objective, {where}", late, "s", METHOD, goal_most=0)
    for where, regret in regrets.items():
        yield Figure(f"node-hours / clairvoyant, {where}", regret, "x", METHOD, goal_most=1.25)
        yield Figure(f"attainment, {where}", 100 * attained[where], "%", METHOD, goal_least=99)
        yield Figure(f"under the best baseline, {where}", 100 * against[where], "%", METHOD, goal_least=10)
    yield Figure("requests lost on shrinking", lost, "", METHOD, goal_most=0)
    yield Figure("one policy, an hour's trace, one core", spent_s, "s", METHOD, goal_most=10)


def _row(where: str, policy: str, found: Outcome, best: Outcome, peak: Outcome) -> bool:
    """Print what a policy reached; whether it has a score."""
    goodput = float(found.good.mean() / peak.good.mean())
    changes = sum(len(role.changes) for role in found.roles)
    figures = f"{found.node_hours:7.1f} node-hours" if goodput >= SCORED else "   no score      "
    print(
        f"  {where:<40} {policy:<16} {figures} x{found.node_hours / best.node_hours:.2f} "
        f"attained {found.attainment:.4f} goodput {goodput:.3f} P99 TTFT {np.quantile(found.ttft_s, 0.99):.1f} s "
        f"changes {changes}",
        file=sys.stderr,
        flush=True,
    )
    return goodput >= SCORED
