"""Connectivity of the UB plane after failures, for any routing: what follows from the Clos topology alone.

Traffic between two nodes goes up to one L2 chip and down again, never through the L1 chip of a third node. So an L2
chip serves a pair of nodes in a sub-plane if the chip and its cables to both are intact, and a pair's capacity is the
smaller of those cables and the dies' own links.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from matrixlink.fabric.sharing.flow import Number


@dataclass(frozen=True)
class UbFailures:
    """A UB plane: its sizes, and its failed chips as (sub-plane, l2) and cables as (sub-plane, node, l2)."""

    sub_planes: int
    nodes: int
    l2_per_sub_plane: int
    dies_per_node: int
    die_link_gbps: Number = 28.0
    uplink_gbps: Number = 28.0
    failed_l2: Collection[tuple[int, int]] = field(default_factory=frozenset)
    failed_cables: Collection[tuple[int, int, int]] = field(default_factory=frozenset)

    def reachable_l2(self, plane: int, node: int) -> set[int]:
        """The L2 chips of a sub-plane that a node can still reach."""
        return {
            k
            for k in range(self.l2_per_sub_plane)
            if (plane, k) not in self.failed_l2 and (plane, node, k) not in self.failed_cables
        }

    def usable_l2(self, source: int, target: int) -> list[int]:
        """The number of L2 chips that connect the pair, per sub-plane."""
        return [len(self.reachable_l2(p, source) & self.reachable_l2(p, target)) for p in range(self.sub_planes)]

    def pair_gbps(self, source: int, target: int) -> Number:
        """The highest rate between two nodes over all sub-planes (GB/s)."""
        dies = self.dies_per_node * self.die_link_gbps
        return sum(min(dies, chips * self.uplink_gbps) for chips in self.usable_l2(source, target))

    def broken_entries(self) -> tuple[int, int]:
        """The numbers of broken entries and of all entries of the table "use the L2 chip with the number of the
        destination die", for every L1 chip and every die of another node."""
        broken = 0
        for plane in range(self.sub_planes):
            alive = [self.reachable_l2(plane, node) for node in range(self.nodes)]
            for chip in (die % self.l2_per_sub_plane for die in range(self.dies_per_node)):
                serving = sum(chip in chips for chips in alive)
                broken += self.nodes * (self.nodes - 1) - serving * (serving - 1)
        return broken, self.sub_planes * self.nodes * (self.nodes - 1) * self.dies_per_node
