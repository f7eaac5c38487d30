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

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.port_order import port_order
from matrixresource.topology import Supernode, SupernodeSpec

ROUND_S, ROUND_FLOOR_WALL_S = 10.0, 0.5
"""A round each 10 s of emulated time (the incumbent's ping mesh: an interval of 1 to 60 s, Ascend/mind-cluster)."""

Parts = NDArray[np.int32]
LINKS_CROSSED = 4
"""The first columns of a probe's parts: the links at both ends. Behind them stand switches, then the two nodes."""
ROUNDS_CACHED = 8


@functools.lru_cache(maxsize=16)
def probe_plan(supernode: str, spec: SupernodeSpec) -> ProbePlan:
    """The plan of a supernode of that name, one for all who ask in this process."""
    return ProbePlan(Supernode(supernode, spec))


class ProbePlan:
    """The rounds of one supernode. Both sides hold one: agents to send, MatrixLink to understand.

    Everything a probe can be lost by is a part with a number: links first, then switches, then nodes, so that of two
    explanations the smaller part has the lower number.
    """

    def __init__(self, supernode: Supernode) -> None:
        self.spec = spec = supernode.spec
        self._layout = layout = supernode.layout
        self.nodes = supernode.nodes()
        self.index = {node: at for at, node in enumerate(self.nodes)}
        self._planes, self._chips = spec.ub.sub_planes, spec.ub.l2_per_sub_plane
        order = port_order(spec)
        self.paths = order.outward
        """The ports out of a node in the order in which a round's probes are numbered."""
        ports = self.paths + order.die_links
        self.port_number = {port: at for at, port in enumerate(ports)}
        switches = [
            *(layout.l1(node, p) for node in self.nodes for p in range(self._planes)),
            *(layout.l2(p, k) for p in range(self._planes) for k in range(self._chips)),
            *(layout.leaf(c, d) for c in layout.compute_cabinets() for d in range(spec.rdma.subnets)),
        ]
        self.names = [f"{node}.{port}" for node in self.nodes for port in ports] + switches + self.nodes
        """Of every part, by its number."""
        self.number = {name: at for at, name in enumerate(self.names)}
        self.plane_of_path = [
            *([Plane.UB] * len(order.uplinks)), *([Plane.RDMA] * len(order.dies)), Plane.VPC
        ]  # fmt: skip
        self._ports = len(ports)
        self._first_switch = len(self.nodes) * self._ports
        self._first_node = self._first_switch + len(switches)
        self.parts = functools.lru_cache(maxsize=ROUNDS_CACHED)(self._parts)

    @property
    def per_round(self) -> int:
        """Probes that a node sends in a round."""
        return len(self.paths) if len(self.nodes) > 1 else 0

    def link(self, part: int) -> bool:
        return part < self._first_switch

    def target(self, node: str, number: int, path: int) -> str:
        """Whom a node's probe over that path asks in that round."""
        return self.names[self.parts(number)[self.index[node], path, -2]]

    def links(self, node: str, number: int, path: int) -> list[str]:
        """The links that a node's probe over that path crosses in that round."""
        crossed = self.parts(number)[self.index[node], path, :LINKS_CROSSED]
        return [self.names[part] for part in crossed if part >= 0]

    def _parts(self, number: int) -> Parts:
        """The parts of every probe of a round, by node and path: own link or links, the peer's, the switches between,
        the peer, the node itself; -1 where there is none. A probe and its answer cross the same parts."""
        count = len(self.nodes)
        found = np.full((count, self.per_round, LINKS_CROSSED + 5), -1, np.int32)
        if count < 2:
            return found
        path = np.arange(self.per_round, dtype=np.int32)
        source: Parts = np.arange(count, dtype=np.int32)[:, None]
        target: Parts = (source + 1 + (path + 5 * number) % (count - 1)) % count
        found[:, :, 0], found[:, :, 1] = source * self._ports + path, target * self._ports + path
        found[:, :, -2], found[:, :, -1] = self._first_node + target, self._first_node + source
        self._ub(found, number, source, target)
        self._rdma(found, source, target)
        return found

    def _ub(self, found: Parts, number: int, source: Parts, target: Parts) -> None:
        """Over the dies' ports, which go round with the chip and the round, two L1 chips and an L2 chip."""
        uplinks, dies = self._planes * self._chips, self.spec.node.dies
        plane, k = np.divmod(np.arange(uplinks), self._chips)
        here, there = (k + number) % dies, (k + 3 * number + plane + 1) % dies
        first_die = len(self.paths)
        ub, to = found[:, :uplinks], target[:, :uplinks]
        ub[:, :, 2] = source * self._ports + first_die + here * self._planes + plane
        ub[:, :, 3] = to * self._ports + first_die + there * self._planes + plane
        first_l2 = self._first_switch + len(self.nodes) * self._planes
        ub[:, :, 4] = self._first_switch + source * self._planes + plane
        ub[:, :, 5] = first_l2 + plane * self._chips + k
        ub[:, :, 6] = self._first_switch + to * self._planes + plane

    def _rdma(self, found: Parts, source: Parts, target: Parts) -> None:
        """From each port to the same port of the peer, in its own subnet, over the leaves of both cabinets."""
        first = self._planes * self._chips
        ports = np.arange(self.spec.node.dies)
        leaves = self._first_switch + len(self.nodes) * self._planes + first
        subnets, a_cabinet = self.spec.rdma.subnets, self.spec.cabinet.nodes
        rdma, to = found[:, first:-1], target[:, first:-1]
        rdma[:, :, 4] = leaves + source // a_cabinet * subnets + ports % subnets
        rdma[:, :, 5] = leaves + to // a_cabinet * subnets + ports % subnets

    def links_of(self, part: str) -> list[str]:
        """The links that carry nothing when a link or switch does not; [] for a node, whose loss is not a link's."""
        if "." in part:
            return [part]
        if part in self.index:
            return []
        if "-l2" in part:
            return [f"{node}.ub-{part.partition('-l2')[2]}" for node in self.nodes]
        owner = part.rpartition("-")[0]  # an L1's node, or a leaf's cabinet
        nodes = [node for node in self.nodes if node == owner or node.startswith(f"{owner}-")]
        links = [link for node in nodes for link in (*self._layout.ub_links(node), *self._layout.rdma_links(node))]
        return [link.name for link in links if part in link.ends]
