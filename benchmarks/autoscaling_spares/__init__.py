"""The effect of spares on autoscaling, in simulation: our policy without them, with them, and accounting for them.

    python -m benchmarks autoscaling_spares
    AUTOSCALING_STARTS=0,10,30,300 AUTOSCALING_SPARES=4 python -m benchmarks autoscaling_spares
    AUTOSCALING_TRACES="jumps,clients" CLOUDMATRIX_TRACES=folder python -m benchmarks autoscaling_spares

The traces, the timing and the initial pools are those of `python -m benchmarks autoscaling`. The start time is that of
a free node. A spare joins the planes and starts like any member, so it serves sooner where that takes less time;
another node boots in its place for the rest of the start time. Spares are paid for all the time. `spares` grows from
them but decides as if it had none (`warmSpares: 0`); `a tier` sets `warmSpares` to their number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks.autoscaler.baselines import default_policy
from benchmarks.autoscaler.cases import cases
from benchmarks.autoscaler.pools import MEMBER_NODES, Outcome, timing
from benchmarks.autoscaler.replay import replay
from benchmarks.autoscaler.spares import Spares
from matrixresource.agent.agent import node_stages

SPARES = int(os.environ.get("AUTOSCALING_SPARES", "4"))
"""Spare nodes beside the members; a member is two nodes."""
QUICK = "sine 15 min,mix shifts,jumps,clients"
JOIN_S = sum(stage.delay_s for stage in node_stages()["promote"])
"""How long a spare takes to join the planes."""
METHOD = "engine timing, half-second slots, spares paid for"


def measure() -> Iterator[Figure]:
    lost = 0
    for case in cases(QUICK, "60,120"):
        join_s = min(case.start_s, JOIN_S + timing().warm_s)
        for what, count, counted in (("none", 0, False), ("spares", SPARES, False), ("a tier", SPARES, True)):
            beside = Spares(count // MEMBER_NODES, case.start_s, join_s)
            policy = default_policy(case.block, spares=beside if counted else None)
            found = replay(case.trace, policy, case.first, case.start_s, changes_roles=True, spares=beside)
            lost += found.lost
            _print_row(case.label, what, found, beside)
            yield Figure(f"node-hours, {what}, {case.label}", found.node_hours, "", METHOD)
            yield Figure(f"attainment, {what}, {case.label}", 100 * found.attainment, "%", METHOD)
    yield Figure("requests lost on shrinking", lost, "", METHOD, goal_max=0)


def _print_row(where: str, what: str, found: Outcome, beside: Spares) -> None:
    print(
        f"  {where:<40} {what:<8} {found.node_hours:7.1f} node-hours attained {100 * found.attainment:6.2f} % "
        f"{beside.taken} spares became members",
        file=sys.stderr,
        flush=True,
    )
