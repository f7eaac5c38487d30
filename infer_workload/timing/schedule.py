"""How operators share a die: one after another, or two microbatches side by side.

Decode: one microbatch is on the attention path on its share of the cores while the other is on the expert path on the
rest; they change places when both are through (the paper's two streams). HBM belongs to neither: when both read more
than it gives, both are slowed. The paper tells the split for one batch and context; we balance the two streams for
each. Prefill: two microbatches run through the same sequence; when both want one engine, one waits. Seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from infer_workload.timing.operators import Operator


def serial_s(operators: Sequence[Operator]) -> float:
    """One after another on all cores."""
    return sum([each.seconds() for each in operators])


def side_by_side_s(first: Sequence[Operator], second: Sequence[Operator], cores: float, saturating: float) -> float:
    """Both sequences at once: the first on that share of the cores, the second on the rest.

    `saturating` is the share of the vector cores that feeds the whole UB port.
    """
    rest = 1.0 - cores
    sending = min(1.0, rest / saturating)
    one = [(each.seconds(cores, 1.0), each.hbm_s) for each in first]
    other = [(each.seconds(rest, sending), each.hbm_s) for each in second]
    return _merged(one, other)


def split(first: Sequence[Operator], second: Sequence[Operator], cores: int, saturating: float) -> int:
    """Of `cores` matrix cores, those of the first sequence: as few as let it end no later than the second.

    The vector cores are split alike. HBM that both want is left out here.
    """
    low, high = 1, cores - 1
    while low < high:
        middle = (low + high) // 2
        share = middle / cores
        rest = 1.0 - share
        sending = min(1.0, rest / saturating)
        ahead = sum([each.seconds(share, 1.0) for each in first])
        if ahead <= sum([each.seconds(rest, sending) for each in second]):
            high = middle
        else:
            low = middle + 1
    return low


def paired_s(first: Sequence[Operator], second: Sequence[Operator], cores: int, saturating: float) -> float:
    """Both sequences at once on the split of the cores that balances them."""
    at = split(first, second, cores, saturating)
    most = side_by_side_s(first, second, at / cores, saturating)
    return min(most, side_by_side_s(first, second, (at - 1) / cores, saturating)) if at > 1 else most


def _merged(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    """Walks both lists of (seconds alone, seconds of HBM in it); where they want more than all of HBM, both stretch."""
    elapsed, a, b = 0.0, 0, 0
    left_a, left_b = one[0][0], other[0][0]
    while True:
        time_a, read_a = one[a]
        time_b, read_b = other[b]
        wanted = (read_a / time_a if read_a else 0.0) + (read_b / time_b if read_b else 0.0)
        slowed = wanted if wanted > 1.0 else 1.0
        if left_a <= left_b:
            elapsed += left_a * slowed
            left_b -= left_a
            a += 1
            if a == len(one):
                return elapsed + left_b + sum([time for time, _ in other[b + 1 :]])
            left_a = one[a][0]
        else:
            elapsed += left_b * slowed
            left_a -= left_b
            b += 1
            if b == len(other):
                return elapsed + left_a + sum([time for time, _ in one[a + 1 :]])
            left_b = other[b][0]


def pipelined_s(operators: Sequence[Operator]) -> float:
    """A layer's time for both of two equal microbatches that follow one another through the same operators.

    An engine serves one of them at a time. With demands D of the engines and C their sum, a microbatch that comes to an
    engine finds the other there with probability D / C (mean value analysis of two customers); operators take fixed
    times, so on average half of what it finds is left: C + sum(D * D) / 2C. No layer is faster than two microbatches
    need on the busiest engine.
    """
    demands: dict[str, float] = {}
    for each in operators:
        demands[each.engine] = demands.get(each.engine, 0.0) + each.seconds()
    alone = sum(demands.values())
    waited = sum([demand * demand for demand in demands.values()]) / (2.0 * alone)
    return max(alone + waited, 2.0 * max(demands.values()))
