"""run(traffic): completion times of many flows in virtual time; `Timeline` with arrays.

There are three methods, and the result says which was used. Together: flows that start at once with sizes proportional
to weights, without floors or ceilings, end at size over initial rate, so one solve is the whole run (timeline.py
explains why). Exact: at every start and end, new rates for the flows that it affects. Windows: flows that end within
`window_ns` of one another release their share together, in the middle of the window, and each ends when its rate at
that moment completes it: those before the middle a little late, those after it a little early, so that most of the
error cancels. Link changes during the run are handled only by `Timeline` and `IncrementalMaxMin`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.max_min_arrays import LEVEL_TOLERANCE, check_floors, fair_rates
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.fabric.sharing.rates import compute_rates, new_fabric
from matrixlink.fabric.sharing.traffic import Floats, Traffic

PROPORTIONAL, EXACT, WINDOWS = "together", "exact", "windows"


@dataclass(frozen=True, slots=True, eq=False)
class CompletionTimes:
    """`at`: when each flow ended (ns; inf if it never can). `rate_solves`: the number of rate computations."""

    at: Floats
    rate_solves: int
    method: str

    @property
    def makespan(self) -> float:
        return float(self.at.max(initial=0.0))


def run(traffic: Traffic, window_ns: float = 0.0) -> CompletionTimes:
    """Run all flows to completion, by guarantee plus share. Raises Overbooked if the floors of all flows do not fit at
    once, and InvalidField for a negative window."""
    if not window_ns >= 0:
        raise InvalidField("a window is at least 0", field="windowNs")
    check_floors(traffic)
    if is_proportional(traffic):
        with np.errstate(divide="ignore"):
            at = traffic.start + traffic.size / compute_rates(traffic)
        return CompletionTimes(at, 1, PROPORTIONAL)
    solves, at = _run_compiled(traffic, window_ns) if load_kernel() else _run_arrays(traffic, window_ns)
    return CompletionTimes(at, solves, WINDOWS if window_ns else EXACT)


def is_proportional(traffic: Traffic) -> bool:
    """Whether no flow's rate can change while it runs."""
    if not len(traffic) or traffic.floor.any() or not np.isinf(traffic.ceiling).all():
        return False
    size, weight = traffic.size, traffic.weight
    in_proportion = (size * weight[0] == size[0] * weight).all()
    return bool(size[0] > 0 and in_proportion and (traffic.start == traffic.start[0]).all())


def _run_compiled(traffic: Traffic, window_ns: float) -> tuple[int, Floats]:
    library = load_kernel()
    fabric = new_fabric(library, traffic)
    at = np.zeros(len(traffic))
    order = np.argsort(traffic.start, kind="stable").astype(np.int32)
    try:
        solves = library.fabric_run(
            fabric, traffic.starts, traffic.links, traffic.weight, traffic.floor, traffic.ceiling,
            traffic.size, traffic.start, order, window_ns, at,
        )  # fmt: skip
    finally:
        library.fabric_free(fabric)
    if solves < 0:
        raise MemoryError("no memory for the flows")
    return int(solves), at


def _run_arrays(traffic: Traffic, window_ns: float) -> tuple[int, Floats]:
    at = np.where(traffic.size > 0, np.inf, traffic.start)
    left = traffic.size.copy()
    ahead = traffic.size > 0  # not started yet
    live = np.zeros(len(traffic), bool)
    rate = np.zeros(len(traffic))
    now, solves = 0.0, 0
    while live.any() or ahead.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            due = np.where(live & (rate > 0), now + np.maximum(left, 0.0) / rate, np.inf)
        moment = max(min(due.min() + window_ns / 2, traffic.start[ahead].min(initial=np.inf)), now)
        if moment == np.inf:
            break
        left[live] -= rate[live] * (moment - now)
        ended = live & (due <= moment + moment * LEVEL_TOLERANCE + window_ns / 2)
        at[ended] = due[ended]
        begun = ahead & (traffic.start <= moment)
        live = (live & ~ended) | begun
        ahead &= ~begun
        now = moment
        if live.any():
            solves += 1
            rate[live] = fair_rates(subset(traffic, live))
    return solves, at


def subset(traffic: Traffic, chosen: NDArray[np.bool_]) -> Traffic:
    """The chosen flows over the same links."""
    starts = np.zeros(int(chosen.sum()) + 1, np.int64)
    np.cumsum(traffic.lengths[chosen], out=starts[1:])
    each = (getattr(traffic, name)[chosen] for name in ("weight", "floor", "ceiling", "size", "start"))
    return Traffic(traffic.capacity, starts, traffic.links[np.repeat(chosen, traffic.lengths)], *each)
