"""The choice for requests without constraints: the tightest fit at every level, so that large blocks stay whole.

- A part of a node goes where it does the least harm: judged by the sizes requested so far, to the node whose remainder
  the fewest of them could not use (after "Beware of Fragmentation", ATC 2023); a whole node is only broken up in the
  fullest cabinet.
- A gang takes the smallest cabinet or supernode that holds it; inside, full cabinets first and the tightest last.
- Among equals, up to eight, it takes the one whose tenants leave at about the same time as the new allocation.

`Policy` turns the last two rules off, or selects plain first fit, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from matrixresource.scheduler.model.bitmasks import dies_for, low_bits, lowest
from matrixresource.scheduler.model.free_capacity_index import EVEN, FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement, PlacementRequest

CANDIDATES = 8
REORDER_INTERVAL = 32


@dataclass(frozen=True)
class Policy:
    """`learns`: place parts by the sizes seen, else on the tightest node. `leases`: group similar leaving times."""

    learns: bool = True
    leases: bool = True


POLICIES = {"best": Policy(), "tightest": Policy(learns=False, leases=False), "learning": Policy(leases=False)}


class BestFit:
    """Chooses from an index and never changes it. `ends` are the latest known leaving times, by node and by cabinet."""

    def __init__(self, index: FreeCapacityIndex, policy: Policy = POLICIES["best"]) -> None:
        self.index, self.policy = index, policy
        self.node_ends = [0.0] * index.shape.all_nodes
        self.cabinet_ends = [0.0] * index.shape.all_cabinets
        npus = index.npus
        self.size_counts = [0] * (npus + 1)
        self._until_reordered = REORDER_INTERVAL
        self.orders = [list(range(size, npus + 1)) for size in range(npus + 1)]

    # ---- parts of a node

    def choose(self, request: PlacementRequest) -> Placement | None:
        """A placement for a request without constraints, or None."""
        if request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
            return None  # not a whole number of blocks
        return (
            self.choose_part(request)
            if request.nodes == 1 and request.npus_per_node < self.index.npus
            else self.choose_gang(request)
        )

    def choose_part(self, request: PlacementRequest) -> Placement | None:
        """Several NPUs, one, or a die, on one node."""
        index, npus = self.index, self.index.npus
        if request.npus_per_node < 1:
            return self._choose_die(request)
        size = int(request.npus_per_node)
        for free in self.orders[size]:
            if free == npus:
                if (cabinet := self.tightest_cabinet(1, request.lease_end)) < 0:
                    continue
                node = cabinet * index.nodes + (index.whole[cabinet] & -index.whole[cabinet]).bit_length() - 1
            elif nodes := index.nodes_by_free_npus[free]:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
            else:
                continue
            return Placement(parts=[(node, dies_for(index.dies[node], size))])
        return None

    def _choose_die(self, request: PlacementRequest) -> Placement | None:
        index = self.index
        for nodes in index.nodes_with_free_die:
            if nodes:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
                dies = index.dies[node]
                single = dies & ~((dies & dies >> 1 & EVEN) * 3)
                return Placement(parts=[(node, single & -single)])
        for nodes in index.nodes_by_free_npus[1:]:
            if nodes:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
                pairs = index.dies[node] & index.dies[node] >> 1 & EVEN
                return Placement(parts=[(node, pairs & -pairs)])
        cabinet = self.tightest_cabinet(1, request.lease_end)
        if cabinet < 0:
            return None
        whole = index.whole[cabinet]
        return Placement(parts=[(cabinet * index.nodes + (whole & -whole).bit_length() - 1, 1)])

    def observe_size(self, request: PlacementRequest) -> None:
        """Count a requested size; now and then the order in which parts look for a node is recomputed."""
        self.size_counts[int(request.npus_per_node) if request.npus_per_node >= 1 else 0] += request.nodes
        self._until_reordered -= 1
        if self._until_reordered or not self.policy.learns:
            return
        self._until_reordered = REORDER_INTERVAL
        npus = self.index.npus
        unusable = [sum(self.size_counts[free + 1 :]) * free for free in range(npus + 1)]
        self.orders = [
            sorted(range(size, npus + 1), key=lambda free: (unusable[free - size] - unusable[free], free))
            for size in range(npus + 1)
        ]

    def copy(self, index: FreeCapacityIndex) -> BestFit:
        """The same chooser over a copy of its index."""
        copy = BestFit(index, self.policy)
        copy.node_ends, copy.cabinet_ends, copy.size_counts = (
            list(self.node_ends),
            list(self.cabinet_ends),
            list(self.size_counts),
        )
        copy.orders, copy._until_reordered = [list(order) for order in self.orders], self._until_reordered
        return copy

    def copy_statistics(self, other: BestFit) -> None:
        """Adopt what another chooser of the same shape has learned about sizes."""
        self.size_counts, self.orders, self._until_reordered = other.size_counts, other.orders, other._until_reordered

    # ---- whole nodes

    def choose_gang(self, request: PlacementRequest) -> Placement | None:
        index, wanted = self.index, request.nodes
        if wanted <= index.nodes:
            cabinet = self.tightest_cabinet(wanted, request.lease_end)
            if cabinet >= 0:
                return Placement(whole=[(cabinet, lowest(index.whole[cabinet], wanted))])
        if request.required_domain == "cabinet":
            return None
        if (least := index.tightest_supernode_size(wanted)) >= 0:
            return Placement(whole=self.fill_supernode(self.choose_supernode(least, wanted), wanted, request.lease_end))
        return None if request.required_domain else self.span_supernodes(request)

    def tightest_cabinet(self, wanted: int, end: float) -> int:
        """The cabinet with the fewest whole nodes that suffice, in the fullest supernode among those; -1 for none."""
        index = self.index
        for count in range(wanted, index.nodes + 1):
            if supernodes := index.supernodes_by_cabinet[count]:
                supernode = 0
                if index.shape.supernodes > 1:
                    found = low_bits(supernodes, CANDIDATES)
                    supernode = min(found, key=index.whole_counts.__getitem__) if len(found) > 1 else found[0]
                return self._choose_cabinet(supernode, count, end)
        return -1

    def _choose_cabinet(self, supernode: int, count: int, end: float) -> int:
        index = self.index
        first = supernode * index.cabinets
        return first + self._with_similar_end(index.cabinets_by_whole[supernode][count], self.cabinet_ends, end, first)

    def choose_supernode(self, least: int, wanted: int) -> int:
        """Among supernodes with the fewest whole nodes that suffice, the one where the gang uses the fewest
        cabinets."""
        index = self.index
        found = low_bits(index.supernodes_by_whole[least], CANDIDATES)
        if len(found) == 1:
            return found[0]
        return min(found, key=lambda supernode: cabinets_for(index.cabinets_by_whole[supernode], wanted))

    def fill_supernode(self, supernode: int, wanted: int, end: float) -> list[tuple[int, int]]:
        """Full cabinets first, the tightest last; the supernode has enough."""
        index = self.index
        whole, first = index.whole, supernode * index.cabinets
        row = list(index.cabinets_by_whole[supernode])
        found: list[tuple[int, int]] = []
        largest = index.nodes
        while wanted:
            for count in range(wanted, largest + 1):
                if row[count]:
                    cabinet = first + self._with_similar_end(row[count], self.cabinet_ends, end, first)
                    found.append((cabinet, lowest(whole[cabinet], wanted)))
                    return found
            while not row[largest]:
                largest -= 1
            low = row[largest] & -row[largest]
            row[largest] ^= low
            cabinet = first + low.bit_length() - 1
            found.append((cabinet, whole[cabinet]))
            wanted -= largest
        return found

    def span_supernodes(self, request: PlacementRequest) -> Placement | None:
        """The emptiest supernodes entirely, in blocks, and the rest in the tightest one, together with the spares."""
        index, block, wanted = self.index, request.supernode_block, request.nodes
        if wanted % block:
            return None
        chosen: list[tuple[int, int]] = []
        used = 0
        size = index.most_whole_nodes()
        while wanted and size > 0:
            waiting = index.supernodes_by_whole[size] & ~used
            if not waiting:
                size -= 1
                continue
            if wanted + request.spares <= size:
                size = self._tightest_unused(wanted + request.spares, used, size)
                waiting = index.supernodes_by_whole[size] & ~used
                take = wanted
            else:
                beside = request.spares if wanted <= size else 0  # they must be in a supernode that the gang uses
                take = (size - beside) // block * block
            if not take:
                return None
            low = waiting & -waiting
            used |= low
            chosen.append((low.bit_length() - 1, take))
            wanted -= take
        if wanted:
            return None
        found: list[tuple[int, int]] = []
        for supernode, take in chosen:
            found += self.fill_supernode(supernode, take, request.lease_end)
        return Placement(whole=found)

    def _tightest_unused(self, wanted: int, used: int, size: int) -> int:
        return next(count for count in range(wanted, size + 1) if self.index.supernodes_by_whole[count] & ~used)

    # ---- among equals

    def _with_similar_end(self, mask: int, ends: list[float], end: float, first: int = 0) -> int:
        """The index of the bit whose tenants leave at about `end`; the lowest if no leaving times are known."""
        low = mask & -mask
        if low == mask or end == inf or not self.policy.leases:
            return low.bit_length() - 1
        best, least = -1, inf
        for _ in range(CANDIDATES):
            place = low.bit_length() - 1
            difference = abs(ends[first + place] - end)
            if difference < least:
                best, least = place, difference
            mask ^= low
            if not mask:
                break
            low = mask & -mask
        return best


def cabinets_for(row: list[int], wanted: int) -> int:
    """The fewest cabinets that `wanted` whole nodes occupy; `row` has the cabinets by their number of whole nodes."""
    found = 0
    for count in range(len(row) - 1, 0, -1):
        cabinets = row[count].bit_count()
        if wanted <= cabinets * count:
            return found + -(-wanted // count)
        found += cabinets
        wanted -= cabinets * count
    return found
