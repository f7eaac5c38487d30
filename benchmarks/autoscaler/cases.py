"""The simulated cases: traces with their initial pools, start times and block sizes.

The same settings select them for every benchmark of the autoscaler:

    AUTOSCALING_TRACES    names, separated by commas, or `all`
    AUTOSCALING_STARTS    start times in seconds, separated by commas
    AUTOSCALING_BLOCKS    nodes that are added and removed together, separated by commas (default 2, a member)
    AUTOSCALING_FIRST     share of the static peak that our policy starts with (default 1)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.autoscaler.clairvoyant import static_peak
from benchmarks.autoscaler.pools import MEMBER_NODES
from benchmarks.autoscaler.traces import SEEDED, TRACES, Trace

INITIAL_SHARE = float(os.environ.get("AUTOSCALING_FIRST", "1"))


@dataclass(frozen=True)
class Case:
    """One trace, start time and block."""

    trace: Trace
    sizes: tuple[int, int]
    """The static peak, in members: prefill, decode."""
    start_s: float
    block: int
    """In nodes."""

    @property
    def first(self) -> tuple[int, int]:
        """The initial pools of our policy, in members."""
        return max(1, round(INITIAL_SHARE * self.sizes[0])), max(1, round(INITIAL_SHARE * self.sizes[1]))

    @property
    def step(self) -> int:
        """The members of a block."""
        return max(1, self.block // MEMBER_NODES)

    @property
    def label(self) -> str:
        seeded = ", seeded" if self.trace.name in SEEDED else ""
        return f"{self.trace.name}, start {self.start_s:.0f} s, block {self.block}{seeded}"


def cases(traces: str, starts_s: str, blocks: str = str(MEMBER_NODES)) -> Iterator[Case]:
    """Yield the cases that the settings select, grouped by trace; the arguments are the defaults of the settings."""
    chosen = os.environ.get("AUTOSCALING_TRACES", traces)
    for name in TRACES if chosen == "all" else chosen.split(","):
        trace = TRACES[name]()
        for block in map(int, os.environ.get("AUTOSCALING_BLOCKS", blocks).split(",")):
            sizes = static_peak(trace, max(1, block // MEMBER_NODES))
            for start_s in map(float, os.environ.get("AUTOSCALING_STARTS", starts_s).split(",")):
                yield Case(trace, sizes, start_s, block)
