"""The index of free capacity: finds what is free in a node, cabinet or supernode without looking at the others.

A set of nodes, cabinets or supernodes is an integer with one bit for each. For every number of free nodes there is the
set of cabinets with exactly that many, and the set of supernodes; for every number of free NPUs, the set of nodes in
use with exactly that many left. A decision therefore looks only at domains that can serve it, and a change touches one
node, its cabinet and its supernode. Everything here can be rebuilt from who holds what.
"""

from __future__ import annotations

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import Placement

EVEN = int("01" * 64, 2)  # the first die of every NPU
WORD_BITS = 480
WORD = (1 << WORD_BITS) - 1


class FreeCapacityIndex:
    """Free dies by node, and the sets above. `whole` nodes are up and entirely free; a node that is down has nothing
    free."""

    __slots__ = (
        "cabinets",
        "cabinets_by_whole",
        "cpus",
        "dies",
        "faulty_dies",
        "free",
        "idle_faulty",
        "mem",
        "node_bits",
        "nodes",
        "nodes_by_free_npus",
        "nodes_with_free_die",
        "npus",
        "present_counts",
        "shape",
        "supernodes_by_cabinet",
        "supernodes_by_whole",
        "up",
        "whole",
        "whole_counts",
    )  # fmt: skip

    def __init__(self, shape: ClusterShape) -> None:
        self.shape = shape
        self.cabinets, self.nodes, self.npus = shape.cabinets, shape.nodes, shape.npus
        everything, full = shape.all_nodes, (1 << shape.nodes) - 1
        self.dies = [shape.dies] * everything
        self.up = [True] * everything
        self.free = [shape.npus] * everything  # free whole NPUs of each node that is up, else -1
        self.cpus = [shape.cpus] * everything
        self.mem = [shape.mem_gib] * everything
        self.whole = [full] * shape.all_cabinets  # by cabinet: its whole nodes
        empty = [0] * shape.nodes
        self.cabinets_by_whole = [
            [*empty, (1 << shape.cabinets) - 1] for _ in range(shape.supernodes)
        ]  # by supernode: its cabinets by number of whole nodes
        self.supernodes_by_cabinet = [
            *empty,
            (1 << shape.supernodes) - 1,
        ]  # supernodes that have a cabinet with this many whole nodes
        self.whole_counts = [shape.nodes_per_supernode] * shape.supernodes  # whole nodes of each supernode
        self.supernodes_by_whole = [0] * shape.nodes_per_supernode + [
            (1 << shape.supernodes) - 1
        ]  # supernodes by number of whole nodes
        self.present_counts = 1 << shape.nodes_per_supernode  # which entries of `supernodes_by_whole` are not empty
        self.faulty_dies: dict[int, int] = {}  # by node: dies that cannot be allocated
        self.idle_faulty: dict[int, int] = {}  # by node: those of them that nobody holds
        self.nodes_by_free_npus = [0] * shape.npus  # nodes in use by number of free whole NPUs
        self.nodes_with_free_die = [0] * shape.npus  # those of them with an NPU of which one die is free
        self.node_bits = [
            tuple(i for i in range(shape.nodes) if mask >> i & 1) for mask in range(min(full + 1, 1 << 12))
        ]

    def copy(self) -> FreeCapacityIndex:
        copy = FreeCapacityIndex(self.shape)
        copy.dies, copy.up, copy.free = list(self.dies), list(self.up), list(self.free)
        copy.cpus, copy.mem, copy.whole = list(self.cpus), list(self.mem), list(self.whole)
        copy.cabinets_by_whole, copy.supernodes_by_cabinet, copy.whole_counts = (
            [list(row) for row in self.cabinets_by_whole],
            list(self.supernodes_by_cabinet),
            list(self.whole_counts),
        )
        copy.supernodes_by_whole, copy.present_counts = list(self.supernodes_by_whole), self.present_counts
        copy.faulty_dies, copy.idle_faulty = dict(self.faulty_dies), dict(self.idle_faulty)
        copy.nodes_by_free_npus, copy.nodes_with_free_die = (
            list(self.nodes_by_free_npus),
            list(self.nodes_with_free_die),
        )
        return copy

    # ---- whole nodes

    def allocate_nodes(self, cabinet: int, mask: int) -> None:
        """Mark whole nodes of a cabinet as fully used."""
        base = cabinet * self.nodes
        if mask & ~self.whole[cabinet]:  # re-taken by its holder after the node went down or some of it broke
            for offset in self.offsets(mask & ~self.whole[cabinet]):
                self.allocate_dies(base + offset, self.shape.dies)
            mask &= self.whole[cabinet]
        for offset in self.offsets(mask):
            self.dies[base + offset] = self.free[base + offset] = 0
        self._set_whole(cabinet, self.whole[cabinet] & ~mask)

    def release_nodes(self, cabinet: int, mask: int) -> None:
        """Mark fully used nodes of a cabinet as free; those that are down become free when they return."""
        base, full, npus, released = cabinet * self.nodes, self.shape.dies, self.npus, 0
        for offset in self.offsets(mask):
            if self.faulty_dies and base + offset in self.faulty_dies:
                self.release_dies(base + offset, full)
                continue
            self.dies[base + offset] = full
            if self.up[base + offset]:
                self.free[base + offset] = npus
                released |= 1 << offset
        self._set_whole(cabinet, self.whole[cabinet] | released)

    def _set_whole(self, cabinet: int, mask: int) -> None:
        old, new = self.whole[cabinet].bit_count(), mask.bit_count()
        self.whole[cabinet] = mask
        if old == new:
            return
        supernode, place = divmod(cabinet, self.cabinets)
        row, bit, supernode_bit = self.cabinets_by_whole[supernode], 1 << place, 1 << supernode
        row[old] ^= bit
        if not row[old]:
            self.supernodes_by_cabinet[old] ^= supernode_bit
        if not row[new]:
            self.supernodes_by_cabinet[new] |= supernode_bit
        row[new] ^= bit
        before = self.whole_counts[supernode]
        after = self.whole_counts[supernode] = before + new - old
        by_free = self.supernodes_by_whole
        by_free[before] ^= supernode_bit
        if not by_free[before]:
            self.present_counts ^= 1 << before
        if not by_free[after]:
            self.present_counts |= 1 << after
        by_free[after] |= supernode_bit

    def offsets(self, mask: int) -> tuple[int, ...]:
        """The positions of the bits of a cabinet's mask."""
        if mask < len(self.node_bits):
            return self.node_bits[mask]
        return tuple(i for i in range(self.nodes) if mask >> i & 1)

    # ---- parts of nodes

    def allocate_dies(self, node: int, bits: int) -> None:
        """Mark dies of a node as used."""
        if self.idle_faulty and node in self.idle_faulty:
            self.idle_faulty[node] &= ~bits
        self._set_node(node, self.dies[node] & ~bits, self.up[node])

    def release_dies(self, node: int, bits: int) -> None:
        if self.faulty_dies and node in self.faulty_dies:
            self.idle_faulty[node] = self.idle_faulty.get(node, 0) | bits & self.faulty_dies[node]
            bits &= ~self.faulty_dies[node]
        self._set_node(node, self.dies[node] | bits, self.up[node])

    def set_faulty_dies(self, node: int, bits: int) -> None:
        """Set which dies of a node cannot be newly allocated, replacing the previous ones; present holders keep
        them."""
        before = self.faulty_dies.get(node, 0)
        if before == bits:
            return
        kept = self.idle_faulty.get(node, 0)
        repaired, free = kept & ~bits, bits & self.dies[node]
        self.faulty_dies[node], self.idle_faulty[node] = bits, kept & bits | free
        if not bits:
            del self.faulty_dies[node], self.idle_faulty[node]
        self._set_node(node, self.dies[node] & ~free | repaired, self.up[node])

    def set_up(self, node: int, up: bool) -> None:
        """Close a node, or open it again; present holders keep it."""
        if self.up[node] != up:
            self._set_node(node, self.dies[node], up)

    def _set_node(self, node: int, dies: int, up: bool) -> None:
        old, npus = self.free[node], self.npus
        node_bit = 1 << node
        if 0 <= old < npus:
            if self.nodes_by_free_npus[old] & node_bit:
                self.nodes_by_free_npus[old] ^= node_bit
            if self.nodes_with_free_die[old] & node_bit:
                self.nodes_with_free_die[old] ^= node_bit
        self.dies[node], self.up[node] = dies, up
        pairs = dies & dies >> 1 & EVEN
        new = self.free[node] = pairs.bit_count() if up else -1
        if old == npus or new == npus:
            cabinet, offset = divmod(node, self.nodes)
            mask = self.whole[cabinet]
            self._set_whole(cabinet, mask | 1 << offset if new == npus else mask & ~(1 << offset))
        if 0 <= new < npus:
            if new:
                self.nodes_by_free_npus[new] |= node_bit
            if dies != pairs * 3:
                self.nodes_with_free_die[new] |= node_bit

    # ---- questions

    def is_unallocated(self, place: Placement) -> bool:
        """Whether nobody holds any of a placement, whether or not its nodes are up and its dies sound."""
        nodes, full, broken = self.nodes, self.shape.dies, self.idle_faulty
        for part in (place.whole, place.spares):
            for cabinet, mask in part:
                used = mask & ~self.whole[cabinet]
                for node in (cabinet * nodes + offset for offset in self.offsets(used)) if used else ():
                    if self.dies[node] | broken.get(node, 0) != full:
                        return False
        for node, dies in place.parts:
            if dies & ~self.dies[node] and dies & ~self.dies[node] & ~broken.get(node, 0):
                return False
        if not (place.cpus or place.mem):
            return True
        return all(self.cpus[node] >= amount for node, amount in place.cpus) and all(
            self.mem[node] >= amount for node, amount in place.mem
        )

    def is_allocatable(self, place: Placement) -> bool:
        """Whether a placement can be allocated: nobody holds it, its nodes are up and its dies sound."""
        pools = [*place.cpus, *place.mem]
        whole = all(mask & ~self.whole[cabinet] == 0 for cabinet, mask in place.whole + place.spares)
        parts = all(self.up[node] and dies & ~self.dies[node] == 0 for node, dies in place.parts)
        return whole and parts and all(self.up[node] for node, _ in pools) and self.is_unallocated(place)

    def partly_used_nodes(self, npus_per_node: float) -> int:
        """The nodes in use that have `npus_per_node` NPUs, or a die, free."""
        found = 0
        for free in range(max(1, int(npus_per_node)), self.npus):
            found |= self.nodes_by_free_npus[free]
        if npus_per_node < 1:
            for halves in self.nodes_with_free_die:
                found |= halves
        return found

    def tightest_supernode_size(self, nodes: int) -> int:
        """The smallest number of whole nodes, at least `nodes`, that some supernode has; -1 if none."""
        found = self.present_counts >> nodes
        return nodes + (found & -found).bit_length() - 1 if found else -1

    def most_whole_nodes(self) -> int:
        """The most whole nodes that any one supernode has."""
        return self.present_counts.bit_length() - 1

    def state(self) -> dict[str, object]:
        """Everything derived, for comparison with a rebuilt index."""
        derived = (
            "free", "whole", "cabinets_by_whole", "supernodes_by_cabinet", "whole_counts", "supernodes_by_whole",
            "present_counts", "nodes_by_free_npus", "nodes_with_free_die",
        )  # fmt: skip
        return {name: getattr(self, name) for name in derived}
