"""How many supernodes, cabinets, nodes and NPUs there are, and the arithmetic between their numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClusterShape:
    """Supernodes of equal cabinets of equal nodes. Nodes are numbered throughout: node // nodes is the cabinet's
    number.

    `cabinets` per supernode, `nodes` per cabinet, `npus` per node (two dies each), `cpus` sockets and `mem_gib` of host
    memory per node.
    """

    supernodes: int
    cabinets: int
    nodes: int
    npus: int = 8
    cpus: int = 4
    mem_gib: int = 1536

    def __reduce__(self) -> tuple[type[ClusterShape], tuple[int, ...]]:
        """By its numbers: a compiled frozen class cannot have its attributes restored one by one."""
        return ClusterShape, (self.supernodes, self.cabinets, self.nodes, self.npus, self.cpus, self.mem_gib)

    @property
    def all_cabinets(self) -> int:
        return self.supernodes * self.cabinets

    @property
    def all_nodes(self) -> int:
        return self.all_cabinets * self.nodes

    @property
    def nodes_per_supernode(self) -> int:
        """Nodes in a supernode."""
        return self.cabinets * self.nodes

    def size_of(self, domain: str) -> int:
        """Nodes in a node, a cabinet, a supernode, or in all ("")."""
        if domain == "cabinet":
            return self.nodes
        if domain == "supernode":
            return self.nodes_per_supernode
        return 1 if domain == "node" else self.all_nodes

    @property
    def dies(self) -> int:
        """All dies of a node as a mask; NPU k has bits 2k and 2k+1."""
        return (1 << 2 * self.npus) - 1
