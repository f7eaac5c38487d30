"""Fair rates for flows that may be split freely over several paths.

Max-min over the total rates of flows is a sequence of linear programs: maximize the smallest rate, fix the flows whose
dual price shows that they limit it, and continue with the others. All values are Fractions, so the answer is exact; it
is meant for tens of flows (what-if questions and references), not for the loop of a simulation.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from benchmarks.fabric_oracles.linear import maximize

Paths = Sequence[Sequence[Hashable]]


def share_split(candidates: Sequence[Paths], links: Mapping[Any, Fraction]) -> tuple[list[Fraction], Fraction]:
    """The max-min fair rate of each flow, and the highest rate that all flows with a path can have at once.

    `candidates`: per flow, the paths that it may use; a flow without any has rate 0 and does not limit others.
    """
    rate: list[Fraction] = [Fraction(0)] * len(candidates)
    open_flows = [f for f, paths in enumerate(candidates) if paths]
    common = Fraction(0)
    fixed: dict[int, Fraction] = {}
    while open_flows:
        level, current = _raise_common_rate(candidates, links, open_flows, fixed)
        if not fixed:
            common = level
        for f in current:
            fixed[f] = rate[f] = level
        open_flows = [f for f in open_flows if f not in fixed]
    return rate, common


def _raise_common_rate(
    candidates: Sequence[Paths], links: Mapping[Any, Fraction], open_flows: list[int], fixed: dict[int, Fraction]
) -> tuple[Fraction, list[int]]:
    """The highest common rate of the open flows while fixed ones keep theirs, and the open flows that limit it."""
    columns = [(f, path) for f in [*open_flows, *fixed] for path in candidates[f]]
    used = {key: row for row, key in enumerate(dict.fromkeys(key for _, path in columns for key in path))}
    wide = len(columns) + 1  # the last column is the level
    rows = [[Fraction(0)] * wide for _ in used]
    for column, (_, path) in enumerate(columns):
        for key in set(path):
            rows[used[key]][column] = Fraction(1)
    bounds = [Fraction(links[key]) for key in used]
    for f in [*open_flows, *fixed]:
        row = [Fraction(-1) if owner == f else Fraction(0) for owner, _ in columns]
        rows.append([*row, Fraction(0 if f in fixed else 1)])
        bounds.append(-fixed.get(f, Fraction(0)))
    objective = [Fraction(0)] * (wide - 1) + [Fraction(1)]
    level, prices = maximize(objective, rows, bounds)
    current = [f for position, f in enumerate(open_flows) if prices[len(used) + position] > 0]
    return level, current
