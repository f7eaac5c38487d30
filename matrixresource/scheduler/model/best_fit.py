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
LEARN_EVERY = 32


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
        self.seen = [0] * (npus + 1)
        self._until_learned = LEARN_EVERY
        self.orders = [list(range(size, npus + 1)) for size in range(npus + 1)]

    # ---- parts of a node

    def choose(self, request: PlacementRequest) -> Placement | None:
        """A placement for a request without constraints, or None."""
        if request.nodes % request.supernode_block or request.nodes % request.cabinet_block:
            return None  # not a whole number of blocks
        return (
            self.part(request) if request.nodes == 1 and request.npus_per_node < self.index.npus else self.gang(request)
        )

    def part(self, request: PlacementRequest) -> Placement | None:
        """Several NPUs, one, or a die, on one node."""
        index, npus = self.index, self.index.npus
        if request.npus_per_node < 1:
            return self._die(request)
        size = int(request.npus_per_node)
        for free in self.orders[size]:
            if free == npus:
                if (cabinet := self.smallest_cabinet(1, request.lease_end)) < 0:
                    continue
                node = cabinet * index.nodes + (index.whole[cabinet] & -index.whole[cabinet]).bit_length() - 1
            elif nodes := index.parts[free]:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
            else:
                continue
            return Placement(parts=[(node, dies_for(index.dies[node], size))])
        return None

    def _die(self, request: PlacementRequest) -> Placement | None:
        index = self.index
        for nodes in index.halves:
            if nodes:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
                dies = index.dies[node]
                single = dies & ~((dies & dies >> 1 & EVEN) * 3)
                return Placement(parts=[(node, single & -single)])
        for nodes in index.parts[1:]:
            if nodes:
                node = self._with_similar_end(nodes, self.node_ends, request.lease_end)
                pairs = index.dies[node] & index.dies[node] >> 1 & EVEN
                return Placement(parts=[(node, pairs & -pairs)])
        cabinet = self.smallest_cabinet(1, request.lease_end)
        if cabinet < 0:
            return None
        whole = index.whole[cabinet]
        return Placement(parts=[(cabinet * index.nodes + (whole & -whole).bit_length() - 1, 1)])

    def observe_size(self, request: PlacementRequest) -> None:
        """Count a requested size; now and then the order in which parts look for a node is recomputed."""
        self.seen[int(request.npus_per_node) if request.npus_per_node >= 1 else 0] += request.nodes
        self._until_learned -= 1
        if self._until_learned or not self.policy.learns:
            return
        self._until_learned = LEARN_EVERY
        npus = self.index.npus
        unusable = [sum(self.seen[free + 1 :]) * free for free in range(npus + 1)]
        self.orders = [
            sorted(range(size, npus + 1), key=lambda free: (unusable[free - size] - unusable[free], free))
            for size in range(npus + 1)
        ]

    def copy(self, index: FreeCapacityIndex) -> BestFit:
        """The same chooser over a copy of its index."""
        made = BestFit(index, self.policy)
        made.node_ends, made.cabinet_ends, made.seen = list(self.node_ends), list(self.cabinet_ends), list(self.seen)
        made.orders, made._until_learned = [list(order) for order in self.orders], self._until_learned
        return made

    def copy_statistics(self, other: BestFit) -> None:
        """Adopt what another chooser of the same shape has learned about sizes."""
        self.seen, self.orders, self._until_learned = other.seen, other.orders, other._until_learned

    # ---- whole nodes

    def gang(self, request: PlacementRequest) -> Placement | None:
        index, wanted = self.index, request.nodes
        if wanted <= index.nodes:
            cabinet = self.smallest_cabinet(wanted, request.lease_end)
            if cabinet >= 0:
                return Placement(whole=[(cabinet, lowest(index.whole[cabinet], wanted))])
        if request.required_domain == "cabinet":
            return None
        if (least := index.smallest_supernode_with(wanted)) >= 0:
            return Placement(whole=self.in_supernode(self.supernode(least, wanted), wanted, request.lease_end))
        return None if request.required_domain else self.over_supernodes(request)

    def smallest_cabinet(self, wanted: int, end: float) -> int:
        """The cabinet with the fewest whole nodes that suffice, in the fullest supernode among those; -1 for none."""
        index = self.index
        for count in range(wanted, index.nodes + 1):
            if supernodes := index.having[count]:
                supernode = 0
                if index.shape.supernodes > 1:
                    found = low_bits(supernodes, CANDIDATES)
                    supernode = min(found, key=index.left.__getitem__) if len(found) > 1 else found[0]
                return self._cabinet(supernode, count, end)
        return -1

    def _cabinet(self, supernode: int, count: int, end: float) -> int:
        index = self.index
        first = supernode * index.cabinets
        return first + self._with_similar_end(index.rows[supernode][count], self.cabinet_ends, end, first)

    def supernode(self, least: int, wanted: int) -> int:
        """Among supernodes with the fewest whole nodes that suffice, the one where the gang uses the fewest
        cabinets."""
        index = self.index
        found = low_bits(index.by_free[least], CANDIDATES)
        if len(found) == 1:
            return found[0]
        return min(found, key=lambda supernode: cabinets_for(index.rows[supernode], wanted))

    def in_supernode(self, supernode: int, wanted: int, end: float) -> list[tuple[int, int]]:
        """Full cabinets first, the tightest last; the supernode has enough."""
        index = self.index
        whole, first = index.whole, supernode * index.cabinets
        row = list(index.rows[supernode])
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

    def over_supernodes(self, request: PlacementRequest) -> Placement | None:
        """The emptiest supernodes entirely, in blocks, and the rest in the tightest one, together with the spares."""
        index, block, wanted = self.index, request.supernode_block, request.nodes
        if wanted % block:
            return None
        chosen: list[tuple[int, int]] = []
        used = 0
        size = index.most_left()
        while wanted and size > 0:
            waiting = index.by_free[size] & ~used
            if not waiting:
                size -= 1
                continue
            if wanted + request.spares <= size:
                size = self._tightest_unused(wanted + request.spares, used, size)
                waiting = index.by_free[size] & ~used
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
            found += self.in_supernode(supernode, take, request.lease_end)
        return Placement(whole=found)

    def _tightest_unused(self, wanted: int, used: int, size: int) -> int:
        return next(count for count in range(wanted, size + 1) if self.index.by_free[count] & ~used)

    # ---- among equals

    def _with_similar_end(self, mask: int, ends: list[float], end: float, first: int = 0) -> int:
        """The index of the bit whose tenants leave at about `end`; the lowest if no leaving times are known."""
        low = mask & -mask
        if low == mask or end == inf or not self.policy.leases:
            return low.bit_length() - 1
        best, least = -1, inf
        for _ in range(CANDIDATES):
            place = low.bit_length() - 1
            apart = abs(ends[first + place] - end)
            if apart < least:
                best, least = place, apart
            mask ^= low
            if not mask:
                break
            low = mask & -mask
        return best


def cabinets_for(row: list[int], wanted: int) -> int:
    """The fewest cabinets that `wanted` whole nodes occupy; `row` has the cabinets by their number of whole nodes."""
    found = 0
    for count in range(len(row) - 1, 0, -1):
        there = row[count].bit_count()
        if wanted <= there * count:
            return found + -(-wanted // count)
        found += there
        wanted -= there * count
    return found
