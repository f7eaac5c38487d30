"""The cost of not knowing the future: the best of a family of causal rules, chosen with knowledge of the whole trace.

A rule requests, for each role, a multiple of the highest load in a past window. Like every policy it knows the load
only up to now; its two numbers are those that fit this trace best, which no policy can know. Without memory, its
headroom covers the jump that may come within a start; with a memory as long as the trace it is the static peak, since
the initial size counts as load of that moment. The gap between the clairvoyant plan and this is the cost of not knowing
the future; the gap between this and a policy is the cost of finding the rule on the way. The family ignores seasons, so
a policy may beat it on a seasonal load.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil, sqrt

from benchmarks.autoscaler.clairvoyant import ATTAINED
from benchmarks.autoscaler.pools import Outcome, RoleObservation
from benchmarks.autoscaler.replay import replay
from benchmarks.autoscaler.traces import Trace

WINDOWS_S = (30.0, 300.0, 1200.0, 7200.0)
"""The windows of the highest load, from hardly any memory to the whole trace."""
HEADROOMS = (0.7, 4.0)
BISECTIONS = 4
"""Bisections of the range of headrooms, which end within about a tenth of the smallest sufficient one."""
SMOOTHING_S = 30.0


@dataclass
class PeakRule:
    """The rule for one role, in members."""

    hold_s: float
    headroom: float
    step: int
    loads: deque[tuple[float, float]] = field(default_factory=deque)
    levels: deque[tuple[float, float]] = field(default_factory=deque)

    def __call__(self, seen: RoleObservation) -> int:
        if not self.levels:
            self.levels.append((seen.now, seen.members / self.headroom))
        self.loads.append((seen.now, seen.load))
        while self.loads[0][0] <= seen.now - SMOOTHING_S:
            self.loads.popleft()
        self.levels.append((seen.now, sum(load for _, load in self.loads) / len(self.loads)))
        while self.levels[0][0] <= seen.now - self.hold_s:
            self.levels.popleft()
        wanted = self.headroom * max(level for _, level in self.levels)
        return max(1, ceil(wanted / self.step - 1e-9)) * self.step


Rule = tuple[float, float]
"""(hold, headroom)."""


def hindsight(trace: Trace, peak: Outcome, sizes: tuple[int, int], start_s: float, step: int = 1) -> Outcome:
    """The replay of the cheapest rules that attain the objective; the static peak if none is cheaper."""
    rules: list[Rule] = [(WINDOWS_S[-1], 1.0)] * 2
    for role in (0, 1):
        rules[role] = _cheapest(trace, sizes, start_s, step, rules, role)
    best = _replay_rules(trace, sizes, start_s, step, rules)
    return best if best.attainment >= ATTAINED and best.node_hours < peak.node_hours else peak


def _cheapest(trace: Trace, sizes: tuple[int, int], start_s: float, step: int, rules: list[Rule], role: int) -> Rule:
    """The cheapest rule of one role, given the other role's present rule."""
    best, cost = rules[role], float("inf")
    for hold_s in WINDOWS_S:
        low, high = HEADROOMS
        for _ in range(BISECTIONS):
            middle = sqrt(low * high)
            tried = [(hold_s, middle) if each == role else rule for each, rule in enumerate(rules)]
            found = _replay_rules(trace, sizes, start_s, step, tried)
            missed = float((found.slow if role else found.late).mean())
            enough = missed <= (1 - ATTAINED) / 2
            low, high = (low, middle) if enough else (middle, high)
            if enough and found.roles[role].member_s < cost:
                best, cost = (hold_s, middle), found.roles[role].member_s
    return best


def _replay_rules(trace: Trace, sizes: tuple[int, int], start_s: float, step: int, rules: list[Rule]) -> Outcome:
    peaks = [PeakRule(*rule, step) for rule in rules]
    return replay(trace, lambda seen: [one(each) for one, each in zip(peaks, seen, strict=True)], sizes, start_s)
