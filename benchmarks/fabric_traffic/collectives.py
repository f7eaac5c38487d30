"""Collectives as flows: the sources, targets and sizes of each step.

A collective is a list of steps; a step is a set of moves (source die, target die, bytes) that start together, and how
often it is repeated. Dies are numbered across the supernode: die d of node n is 16 n + d on the published machine. The
links of a move come from its plane's `Paths`; `duration` runs the steps in sequence, each with its latency. Sizes are
bytes, times nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.fabric_traffic.completion import run
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.traffic import Traffic

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveStep:
    """Moves that start together, repeated `times` times in a row."""

    source: Ints
    target: Ints
    size: float
    times: int = 1


def all_to_all(dies: Sequence[int], pair_bytes: float) -> list[CollectiveStep]:
    """Each die sends `pair_bytes` to every other: the dispatch of tokens to experts, and their combine."""
    ranks = _ranks(dies)
    first, second = np.divmod(np.arange(len(ranks) ** 2), len(ranks))
    other = first != second
    return [CollectiveStep(ranks[first[other]], ranks[second[other]], pair_bytes)]


def all_gather(dies: Sequence[int], block_bytes: float) -> list[CollectiveStep]:
    """Each die's block travels around the ring until every die has all blocks."""
    ranks = _ranks(dies)
    return [CollectiveStep(ranks, np.roll(ranks, -1), block_bytes, len(ranks) - 1)]


def all_reduce(dies: Sequence[int], vector_bytes: float) -> list[CollectiveStep]:
    """On a ring: parts of the vector are summed on a first round, and the sums are distributed on a second."""
    part = all_gather(dies, vector_bytes / len(dies))[0]
    return [CollectiveStep(part.source, part.target, part.size, 2 * part.times)]


def broadcast(dies: Sequence[int], size: float) -> list[CollectiveStep]:
    """From the first die to all, by doubling: in each step every die that has the data sends it to one without."""
    ranks, steps, have = _ranks(dies), [], 1
    while have < len(ranks):
        sending = min(have, len(ranks) - have)
        steps.append(CollectiveStep(ranks[:sending], ranks[have : have + sending], size))
        have += sending
    return steps


def incast(sources: Sequence[int], target: int, size: float) -> list[CollectiveStep]:
    """All sources send to one target."""
    ranks = _ranks(sources)
    return [CollectiveStep(ranks, np.full(len(ranks), target, np.int64), size)]


def kv_pull(prefill: Sequence[int], decode: Sequence[int], size: float) -> list[CollectiveStep]:
    """Decode die i pulls `size` bytes of KV from prefill die i, modulo the number of prefill dies."""
    targets, current = np.asarray(decode, np.int64), _ranks(prefill)
    return [CollectiveStep(current[np.arange(len(targets)) % len(current)], targets, size)]


def _ranks(dies: Sequence[int]) -> Ints:
    ranks = np.asarray(dies, np.int64)
    if not len(ranks) or len(np.unique(ranks)) != len(ranks):
        raise InvalidField("at least one die, and none twice", field="dies")
    return ranks


class Paths(Protocol):
    """A plane's links and the paths of moves over them: for UB in `ub_paths.py`, for RDMA and VPC in
    `rdma_vpc_paths.py`."""

    def striped(self, step: CollectiveStep) -> Traffic: ...


def duration(steps: Sequence[CollectiveStep], paths: Paths, latency_ns: float = 0.0) -> float:
    """Nanoseconds from the first byte of the first step to the last byte of the last, with striped moves, and latency
    added per step."""
    return sum((step.times * (run(paths.striped(step)).makespan + latency_ns) for step in steps), 0.0)
