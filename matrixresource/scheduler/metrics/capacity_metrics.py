"""How full a machine is and how its free capacity is distributed, as shown by metrics and pages.

Read from the index in time proportional to the cabinets, the nodes in partial use and the allocations; nothing is
cached. Dies are counted, so half NPUs cause no rounding. Free capacity on a node that is down or closed belongs to no
total, nor does a broken die that nobody holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.state import LedgerState


@dataclass(frozen=True)
class Block:
    """A size in whole nodes inside one cabinet or supernode: how many such gangs fit at once, and the share of whole
    free nodes left over (0 if all can be used, 1 if none fits)."""

    level: str
    nodes: int
    count: int
    stranded: float


@dataclass(frozen=True)
class CapacitySnapshot:
    """Capacity at one moment. `largest` is in nodes, inside a cabinet, inside a supernode and overall ("", as in a
    request).

    `fragmentation`, from 0 to 1: for "node", the share of free dies that is on nodes in use; for "cabinet" and
    "supernode", how far the largest block falls short of the one there would be if all free nodes were together.
    `npus_free` counts a single free die as a half.
    """

    nodes_up: int
    nodes_free: int
    npus_free: float
    spares: int
    largest: dict[str, int]
    blocks: tuple[Block, ...]
    fragmentation: dict[str, float]


def capacity_snapshot(ledger: LedgerState, sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 48)) -> CapacitySnapshot:
    """All metrics at once. `sizes` are the blocks, in nodes, counted inside supernodes; cabinets have every size."""
    index, shape = ledger.index, ledger.shape
    whole, dies_free, largest = sum(index.whole_counts), free_dies(index), largest_blocks(index)
    return CapacitySnapshot(
        nodes_up=index.up.count(True),
        nodes_free=whole,
        npus_free=dies_free / 2,
        spares=sum(
            mask.bit_count() for allocation in ledger.allocations.values() for _, mask in allocation.place.spares
        ),
        largest=largest,
        blocks=tuple(blocks(index, sizes)),
        fragmentation={
            "node": 1 - whole * 2 * shape.npus / dies_free if dies_free else 0.0,
            "cabinet": _fragmentation(largest["cabinet"], whole, shape.nodes),
            "supernode": _fragmentation(largest["supernode"], whole, shape.nodes_per_supernode),
        },
    )


def largest_blocks(index: FreeCapacityIndex) -> dict[str, int]:
    """The most whole nodes that one gang can have inside a cabinet, inside a supernode, and overall."""
    cabinet = next((count for count in range(index.nodes, 0, -1) if index.supernodes_by_cabinet[count]), 0)
    return {"cabinet": cabinet, "supernode": index.most_whole_nodes(), "": sum(index.whole_counts)}


def largest_blocks_of(whole: list[int], shape: ClusterShape) -> dict[str, int]:
    """The same for cabinets that have these whole nodes."""
    counts = [mask.bit_count() for mask in whole]
    each = shape.cabinets
    supernodes = [sum(counts[first : first + each]) for first in range(0, len(counts), each)]
    return {"cabinet": max(counts), "supernode": max(supernodes), "": sum(counts)}


def blocks(index: FreeCapacityIndex, sizes: tuple[int, ...]) -> list[Block]:
    """For every size of a cabinet, and the given sizes of a supernode, how many gangs fit side by side."""
    whole = sum(index.whole_counts)
    counts = [sum(row[free].bit_count() for row in index.cabinets_by_whole) for free in range(index.nodes + 1)]
    found = []
    for size in range(1, index.nodes + 1):
        fitting = sum(there * (free // size) for free, there in enumerate(counts))
        found.append(Block("cabinet", size, fitting, 1 - fitting * size / whole if whole else 0.0))
    for size in sizes:
        if size <= index.shape.nodes_per_supernode:
            fitting = sum(left // size for left in index.whole_counts)
            found.append(Block("supernode", size, fitting, 1 - fitting * size / whole if whole else 0.0))
    return found


def free_dies(index: FreeCapacityIndex) -> int:
    """The free dies on nodes that are up."""
    free = 2 * index.npus * sum(index.whole_counts)
    started = 0
    for nodes in (*index.nodes_by_free_npus, *index.nodes_with_free_die):
        started |= nodes
    while started:
        low = started & -started
        started ^= low
        free += index.dies[low.bit_length() - 1].bit_count()
    return free


def _fragmentation(largest: int, whole: int, size: int) -> float:
    return 1 - largest / min(whole, size) if whole else 0.0
