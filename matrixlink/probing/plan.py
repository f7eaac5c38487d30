"""ProbePlan: who probes whom over which path in which round.

In a round every node sends one probe over each of its paths out: one per UB L2 chip, one per RDMA port, one over the
VPC card. That is 129 probes a node whatever the size of the supernode, and not one per pair of nodes. The peer moves
on by a step of its own for each path and round, the same step for all nodes, so every path is also probed once from
outside; the dies at both ends move too, so every die's port is probed once as a source and once as a target. A part
that fails is therefore on at least two failed probes of a round that share nothing else, and everything beside it is on
a probe that passes. Who is asked is arithmetic, so a report only has to tell the round and which probes went wrong:
MatrixLink works out the others. Every node is probed by every other in time (UB ping mesh of the incumbent's documents;
its own plan of pairs is unpublished, this one is ours).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from matrixresource.topology import Supernode
from matrixresource.vocabulary.planes import Plane

ROUND_S, ROUND_FLOOR_WALL_S = 10.0, 0.5
"""A round each 10 s of emulated time (the incumbent's ping mesh: an interval of 1 to 60 s, Ascend/mind-cluster)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe: `links` by name from source to target, and the `switches` between them. A probe and its answer cross
    the same parts."""

    number: int
    plane: Plane
    source: str
    target: str
    links: tuple[str, ...]
    switches: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Everything that may be at fault when it is lost: links, switches, and the node that should have answered."""
        return (*self.links, *self.switches, self.target, self.source)


class ProbePlan:
    """The rounds of one supernode. Both sides hold one: agents to send, MatrixLink to understand."""

    def __init__(self, supernode: Supernode) -> None:
        self.spec = supernode.spec
        self._layout = supernode.layout
        self.nodes = supernode.nodes()
        self._index = {node: index for index, node in enumerate(self.nodes)}
        self.round_of = functools.lru_cache(maxsize=8 * max(1, len(self.nodes)))(self._round_of)

    def _round_of(self, node: str, round: int) -> tuple[Probe, ...]:
        """The probes that a node sends in a round, by number. None where it has no peer."""
        if len(self.nodes) < 2:
            return ()
        return (*self._ub(node, round), *self._rdma(node, round), *self._vpc(node, round))

    def _peer(self, node: str, path: int, round: int) -> str:
        step = 1 + (path + 5 * round) % (len(self.nodes) - 1)
        return self.nodes[(self._index[node] + step) % len(self.nodes)]

    def _ub(self, node: str, round: int) -> list[Probe]:
        """One over each L2 chip; the dies at both ends go round with the chip and the round."""
        ub, dies, probes = self.spec.ub, self.spec.node.dies, []
        for plane in range(ub.sub_planes):
            for k in range(ub.l2_per_sub_plane):
                number = plane * ub.l2_per_sub_plane + k
                peer = self._peer(node, number, round)
                here, there = (k + round) % dies, (k + 3 * round + plane + 1) % dies
                links = (
                    f"{node}.{self._die_port(here, plane)}", f"{node}.ub-p{plane}-k{k:02d}",
                    f"{peer}.ub-p{plane}-k{k:02d}", f"{peer}.{self._die_port(there, plane)}",
                )  # fmt: skip
                l1, l2 = self._layout.l1, self._layout.l2(plane, k)
                switches = (l1(node, plane), l2, l1(peer, plane))
                probes.append(Probe(number, Plane.UB, node, peer, links, switches))
        return probes

    def _die_port(self, die: int, plane: int) -> str:
        npu, of_npu = divmod(die, self.spec.npu.dies)
        return f"npu{npu}-die{of_npu}-p{plane}"

    def _rdma(self, node: str, round: int) -> list[Probe]:
        """One from each port to the same port of the peer, in its own subnet."""
        first = self.spec.ub.sub_planes * self.spec.ub.l2_per_sub_plane
        cabinet, probes = node.rpartition("-")[0], []
        for npu in range(self.spec.node.npus):
            for die in range(self.spec.npu.dies):
                number = first + npu * self.spec.npu.dies + die
                peer = self._peer(node, number, round)
                port, away = f"rdma-npu{npu}-die{die}", peer.rpartition("-")[0]
                leaves = dict.fromkeys((self._layout.leaf(cabinet, die), self._layout.leaf(away, die)))
                probes.append(
                    Probe(number, Plane.RDMA, node, peer, (f"{node}.{port}", f"{peer}.{port}"), tuple(leaves))
                )
        return probes

    def _vpc(self, node: str, round: int) -> list[Probe]:
        number = self.spec.ub.sub_planes * self.spec.ub.l2_per_sub_plane + self.spec.node.npus * self.spec.npu.dies
        peer = self._peer(node, number, round)
        return [Probe(number, Plane.VPC, node, peer, (f"{node}.vpc", f"{peer}.vpc"), ())]

    @functools.cached_property
    def per_round(self) -> int:
        """Probes that a node sends in a round."""
        return len(self.round_of(self.nodes[0], 0)) if self.nodes else 0

    def links_of(self, part: str) -> list[str]:
        """The links that carry nothing when a link or switch does not; [] for a node, whose loss is not a link's."""
        if "." in part:
            return [part]
        if part in self._index:
            return []
        return self._by_switch.get(part, [])

    @functools.cached_property
    def _by_switch(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            for link in (*self._layout.ub_links(node), *self._layout.rdma_links(node)):
                for end in link.ends:
                    found.setdefault(end, []).append(link.name)
        return found
