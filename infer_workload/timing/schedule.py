"""How operators share a die: one after another, or two microbatches in parallel.

Decode: one microbatch runs the attention path on its share of the cores while the other runs the expert path on the
rest; they swap when both have finished (the paper's two streams). HBM is shared: when both together read more than its
bandwidth, both slow down. The paper gives the split of cores for one batch and context; here the two streams are
balanced for each. Prefill: two microbatches run through the same sequence of operators; when both need one engine, one
waits. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from infer_workload.timing.operators import Operator


def serial_s(operators: Sequence[Operator]) -> float:
    """Time of the operators one after another on all cores."""
    return sum([each.seconds() for each in operators])


def concurrent_s(first: Sequence[Operator], second: Sequence[Operator], cores: float, saturating: float) -> float:
    """Time of both sequences in parallel: the first on the share `cores` of the cores, the second on the rest.

    `saturating` is the share of the vector cores that saturates the UB port.
    """
    rest = 1.0 - cores
    sending = min(1.0, rest / saturating)
    one = [(each.seconds(cores, 1.0), each.hbm_s) for each in first]
    other = [(each.seconds(rest, sending), each.hbm_s) for each in second]
    return _merge_streams(one, other)


def split_cores(first: Sequence[Operator], second: Sequence[Operator], cores: int, saturating: float) -> int:
    """Return how many of `cores` matrix cores the first sequence gets: the fewest with which it ends no later than the
    second.

    The vector cores are split in the same proportion. Contention for HBM is ignored here.
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
    """Time of both sequences in parallel, with the split of the cores that balances them."""
    at = split_cores(first, second, cores, saturating)
    most = concurrent_s(first, second, at / cores, saturating)
    return min(most, concurrent_s(first, second, (at - 1) / cores, saturating)) if at > 1 else most


def _merge_streams(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    """Walk both lists of (seconds alone, HBM seconds within them); where both need more than all of HBM, stretch
    both."""
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
    """Time of a layer for two equal microbatches that follow one another through the same operators.

    An engine serves one microbatch at a time. With engine demands D and their sum C, a microbatch that arrives at an
    engine finds the other there with probability D / C (mean value analysis of two customers). Service times are fixed,
    so on average half of the other's service remains: C + sum(D * D) / 2C. No layer is faster than two microbatches on
    the busiest engine.
    """
    demands: dict[str, float] = {}
    for each in operators:
        demands[each.engine] = demands.get(each.engine, 0.0) + each.seconds()
    alone = sum(demands.values())
    waited = sum([demand * demand for demand in demands.values()]) / (2.0 * alone)
    return max(alone + waited, 2.0 * max(demands.values()))
