"""Collectives as flows: who sends how much to whom, in which steps.

A collective is a list of steps; a step is moves (source die, target die, bytes) that start together, and how often it
is repeated. Dies are numbered through the supernode: die d of node n is 16 n + d on the published machine. Which links
a move takes is reported by its plane's `Paths`; `duration` runs the steps one after the other, each with its latency.
Sizes are bytes, times nanoseconds.
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
    """Moves that start together, done `times` times in a row."""

    source: Ints
    target: Ints
    size: float
    times: int = 1


def all_to_all(dies: Sequence[int], pair_bytes: float) -> list[CollectiveStep]:
    """Everyone sends `pair_bytes` to every other: the dispatch of tokens to experts, and their combine."""
    ranks = _ranks(dies)
    first, second = np.divmod(np.arange(len(ranks) ** 2), len(ranks))
    other = first != second
    return [CollectiveStep(ranks[first[other]], ranks[second[other]], pair_bytes)]


def all_gather(dies: Sequence[int], block_bytes: float) -> list[CollectiveStep]:
    """Everyone's block goes round the ring until everyone has every block."""
    ranks = _ranks(dies)
    return [CollectiveStep(ranks, np.roll(ranks, -1), block_bytes, len(ranks) - 1)]


def all_reduce(dies: Sequence[int], vector_bytes: float) -> list[CollectiveStep]:
    """On a ring: parts of the vector are summed on the way round, then the sums go round again."""
    part = all_gather(dies, vector_bytes / len(dies))[0]
    return [CollectiveStep(part.source, part.target, part.size, 2 * part.times)]


def broadcast(dies: Sequence[int], size: float) -> list[CollectiveStep]:
    """From the first to all, by doubling: in each step everyone who has it sends it to one who has not."""
    ranks, steps, have = _ranks(dies), [], 1
    while have < len(ranks):
        sending = min(have, len(ranks) - have)
        steps.append(CollectiveStep(ranks[:sending], ranks[have : have + sending], size))
        have += sending
    return steps


def incast(sources: Sequence[int], target: int, size: float) -> list[CollectiveStep]:
    """All to one."""
    ranks = _ranks(sources)
    return [CollectiveStep(ranks, np.full(len(ranks), target, np.int64), size)]


def kv_pull(prefill: Sequence[int], decode: Sequence[int], size: float) -> list[CollectiveStep]:
    """Decode die i pulls `size` bytes of keys and values from prefill die i, counted round where they are fewer."""
    targets, current = np.asarray(decode, np.int64), _ranks(prefill)
    return [CollectiveStep(current[np.arange(len(targets)) % len(current)], targets, size)]


def _ranks(dies: Sequence[int]) -> Ints:
    ranks = np.asarray(dies, np.int64)
    if not len(ranks) or len(np.unique(ranks)) != len(ranks):
        raise InvalidField("at least one die, and none twice", field="dies")
    return ranks


class Paths(Protocol):
    """A plane's links and how moves are laid over them: UB's in `ub_paths.py`, RDMA's and VPC's in
    `rdma_vpc_paths.py`."""

    def striped(self, step: CollectiveStep) -> Traffic: ...


def duration(steps: Sequence[CollectiveStep], paths: Paths, latency_ns: float = 0.0) -> float:
    """Nanoseconds from the first byte of the first step to the last of the last, striped, latency paid per step."""
    return sum((step.times * (run(paths.striped(step)).makespan + latency_ns) for step in steps), 0.0)
