"""Collectives as flows: who sends how much to whom, in which steps, over which links; and the UB plane's links.

A collective is a list of steps; a step is moves (source die, target die, bytes) that start together, and how often it
is repeated. Dies are numbered through the supernode: die d of node n is 16 n + d on the published machine. `UbPaths`
knows the links and gives moves their paths; `duration` runs the steps one after the other, each with its latency. Sizes
are bytes, times nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from matrixlink.fabric.runs import run
from matrixlink.fabric.traffic import Traffic, traffic
from matrixresource.vocabulary.errors import InvalidField

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Moves that start together, done `times` times in a row."""

    source: Ints
    target: Ints
    size: float
    times: int = 1


def all_to_all(dies: Sequence[int], pair_bytes: float) -> list[Step]:
    """Everyone sends `pair_bytes` to every other: the dispatch of tokens to experts, and their combine."""
    ranks = _ranks(dies)
    first, second = np.divmod(np.arange(len(ranks) ** 2), len(ranks))
    other = first != second
    return [Step(ranks[first[other]], ranks[second[other]], pair_bytes)]


def all_gather(dies: Sequence[int], block_bytes: float) -> list[Step]:
    """Everyone's block goes round the ring until everyone has every block."""
    ranks = _ranks(dies)
    return [Step(ranks, np.roll(ranks, -1), block_bytes, len(ranks) - 1)]


def all_reduce(dies: Sequence[int], vector_bytes: float) -> list[Step]:
    """On a ring: parts of the vector are summed on the way round, then the sums go round once more."""
    part = all_gather(dies, vector_bytes / len(dies))[0]
    return [Step(part.source, part.target, part.size, 2 * part.times)]


def broadcast(dies: Sequence[int], size: float) -> list[Step]:
    """From the first to all, by doubling: in each step everyone who has it sends it to one who has not."""
    ranks, steps, have = _ranks(dies), [], 1
    while have < len(ranks):
        sending = min(have, len(ranks) - have)
        steps.append(Step(ranks[:sending], ranks[have : have + sending], size))
        have += sending
    return steps


def incast(sources: Sequence[int], target: int, size: float) -> list[Step]:
    """All to one."""
    ranks = _ranks(sources)
    return [Step(ranks, np.full(len(ranks), target, np.int64), size)]


def kv_pull(prefill: Sequence[int], decode: Sequence[int], size: float) -> list[Step]:
    """Decode die i pulls `size` bytes of keys and values from prefill die i, counted round where they are fewer."""
    targets, held = np.asarray(decode, np.int64), _ranks(prefill)
    return [Step(held[np.arange(len(targets)) % len(held)], targets, size)]


def _ranks(dies: Sequence[int]) -> Ints:
    ranks = np.asarray(dies, np.int64)
    if not len(ranks) or len(np.unique(ranks)) != len(ranks):
        raise InvalidField("at least one die, and none twice", field="dies")
    return ranks


@dataclass(frozen=True)
class UbPaths:
    """The UB plane's directed links, numbered: dies up, dies down, L1 to L2, L2 to L1. `lost` are L2 chips that are
    gone, as (sub-plane, chip)."""

    nodes: int = 48
    sub_planes: int = 7
    dies: int = 16
    chips: int = 16
    die_gbps: float = 28.0
    uplink_gbps: float = 28.0
    lost: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    def capacity(self) -> NDArray[np.float64]:
        planes_of_nodes = self.sub_planes * self.nodes
        trunk = np.full((2, self.sub_planes, self.nodes, self.chips), self.uplink_gbps)
        for plane, chip in self.lost:
            trunk[:, plane, :, chip] = 0.0
        return np.concatenate([np.full(2 * planes_of_nodes * self.dies, self.die_gbps), trunk.ravel()])

    def paths(self, source: Ints, target: Ints, plane: Ints, chip: Ints) -> NDArray[np.int32]:
        """A row per move: up, to the L2 chip, from it, down; within a node only up and down."""
        per_plane, trunks = self.nodes * self.dies, self.sub_planes * self.nodes * self.chips
        down, out = self.sub_planes * per_plane, 2 * self.sub_planes * per_plane
        from_node, to_node = source // self.dies, target // self.dies
        cross = from_node != to_node
        leaves = out + (plane * self.nodes + from_node) * self.chips + chip
        enters = out + trunks + (plane * self.nodes + to_node) * self.chips + chip
        columns = [
            plane * per_plane + source, np.where(cross, leaves, -1), np.where(cross, enters, -1),
            down + plane * per_plane + target,
        ]  # fmt: skip
        return np.stack(columns, 1).astype(np.int32)

    def striped(self, step: Step) -> Traffic:
        """Every move cut into equal parts, one per sub-plane, by the die rule: the L2 chip has the number of the target
        die; entries that point at a lost chip are spread over the living ones of its sub-plane."""
        plane = np.tile(np.arange(self.sub_planes), len(step.source))
        source, target = (np.repeat(dies, self.sub_planes) for dies in (step.source, step.target))
        chip = self._around_lost(plane, target % self.dies % self.chips, source + target // self.dies)
        return traffic(self.capacity(), self.paths(source, target, plane, chip), size=step.size / self.sub_planes)

    def hashed(self, step: Step, seed: int) -> Traffic:
        """Every move whole, over a sub-plane and an L2 chip drawn by the seed, as ECMP draws them by a hash."""
        chance = np.random.default_rng(seed)
        plane = chance.integers(0, self.sub_planes, len(step.source))
        chip = self._around_lost(plane, chance.integers(0, self.chips, len(plane)), step.source + step.target)
        return traffic(self.capacity(), self.paths(step.source, step.target, plane, chip), size=step.size)

    def sprayed(self, step: Step) -> Traffic:
        """Every move cut into equal parts over all living L2 chips of all sub-planes: sub-planes that lost a chip carry
        that much less."""
        living = np.argwhere(self._living())
        plane, chip = np.tile(living, (len(step.source), 1)).T
        source, target = (np.repeat(dies, len(living)) for dies in (step.source, step.target))
        return traffic(self.capacity(), self.paths(source, target, plane, chip), size=step.size / len(living))

    def _living(self) -> NDArray[np.bool_]:
        living = np.ones((self.sub_planes, self.chips), bool)
        for plane, chip in self.lost:
            living[plane, chip] = False
        return living

    def _around_lost(self, plane: Ints, chip: Ints, turn: Ints) -> Ints:
        living, chosen = self._living(), chip.copy()
        for number in np.flatnonzero(~living.all(1)):
            left = np.flatnonzero(living[number])
            if not len(left):
                raise InvalidField("no L2 chip of this sub-plane is left", field=f"subPlanes[{number}]")
            broken = (plane == number) & ~living[number][chip]
            chosen[broken] = left[turn[broken] % len(left)]
        return chosen


class Paths(Protocol):
    """A plane's links and how moves are laid over them: `UbPaths` here, RDMA's and VPC's in `scale_out.py`."""

    def striped(self, step: Step) -> Traffic: ...


def duration(steps: Sequence[Step], paths: Paths, latency_ns: float = 0.0) -> float:
    """Nanoseconds from the first byte of the first step to the last of the last, striped, latency paid per step."""
    return sum((step.times * (run(paths.striped(step)).makespan + latency_ns) for step in steps), 0.0)
