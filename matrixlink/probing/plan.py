"""ProbePlan: who probes whom over which path in which round.

In a round every node sends one probe over each of its outgoing paths: one per UB L2 chip, one per RDMA port, one over
the VPC card. Paths that its own graph or its peer's lacks are not probed; where a cable leads to another chip, the
probe uses that one. That is 129 probes per node whatever the size of the supernode, rather than one per pair of nodes.
The peer advances by a step specific to path and round, the same for all nodes, so every path is also probed once from
outside; the dies at both ends advance too, so every die's port is probed once as a source and once as a target. A part
that fails is therefore on at least two failed probes of a round that share nothing else, and every part around it is on
a probe that passes. Peers are computed, so a report only has to give the round and which probes failed: MatrixLink
reconstructs the paths. In time every node is probed by every other (the UB ping mesh of the incumbent's documents; its
own plan of pairs is unpublished, this one is ours).
"""

from __future__ import annotations

import copy
import functools

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.port_order import port_order
from matrixresource.topology import Supernode
from matrixresource.topology.compiled import CompiledTopology

ROUND_S, ROUND_FLOOR_WALL_S = 10.0, 0.5
"""A round per 10 s of emulated time (the incumbent's ping mesh: an interval of 1 to 60 s, Ascend/mind-cluster)."""

Parts = NDArray[np.int32]
LINK_COLUMNS = 4
"""The first columns of a probe's parts are the links at both ends; after them come switches, then the two nodes."""
ROUNDS_CACHED = 8
SUPERNODES_CACHED = 1024
"""More than a machine has: each is needed in every round, and all with the same wiring share their numbers."""


def probe_plan(supernode: Supernode) -> ProbePlan:
    """The plan of a supernode with that graph, shared within this process."""
    return _plan(supernode.name, supernode.topology)


@functools.lru_cache(maxsize=SUPERNODES_CACHED)
def _plan(name: str, topology: CompiledTopology) -> ProbePlan:
    return _compiled_plan(topology).of(Supernode(name, topology=topology))


@functools.lru_cache(maxsize=16)
def _compiled_plan(topology: CompiledTopology) -> ProbePlan:
    return ProbePlan(Supernode("sn0", topology=topology))


class ProbePlan:
    """The rounds of one supernode. Both sides hold one: agents to send, MatrixLink to interpret.

    Everything that can lose a probe is a part with a number: links first, then switches, then nodes, so that of two
    explanations the smaller part has the lower number.
    """

    def __init__(self, supernode: Supernode) -> None:
        self.spec = spec = supernode.spec
        self._set_names(supernode)
        self._planes, self._chips = spec.ub.sub_planes, spec.ub.l2_per_sub_plane
        order = port_order(spec)
        self.paths = order.outward_ports
        """The outgoing ports of a node in the order in which a round's probes are numbered."""
        ports = self.paths + order.die_links
        self.port_number = {port: at for at, port in enumerate(ports)}
        self.plane_of_path = [
            *([Plane.UB] * len(order.uplinks)), *([Plane.RDMA] * len(order.dies)), Plane.VPC
        ]  # fmt: skip
        self._ports = len(ports)
        self._first_switch = len(self.nodes) * self._ports
        self._first_node = len(self.names) - len(self.nodes)
        self._compile()
        self.parts = functools.lru_cache(maxsize=ROUNDS_CACHED)(self._parts)

    def of(self, supernode: Supernode) -> ProbePlan:
        """The same plan for another supernode with the same graph: only the names differ."""
        if supernode.name == self.supernode.name:
            return self
        plan = copy.copy(self)
        for named in ("names", "number"):
            vars(plan).pop(named, None)
        plan._set_names(supernode)
        return plan

    def _set_names(self, supernode: Supernode) -> None:
        self.supernode = supernode
        self.nodes = supernode.nodes()
        self.index = {node: at for at, node in enumerate(self.nodes)}

    @functools.cached_property
    def names(self) -> list[str]:
        """The name of every part, by its number."""
        every = self.supernode.switches()
        switches = [each.name for kind in ("l1", "l2", "leaf") for each in every if each.kind == kind]
        return [f"{node}.{port}" for node in self.nodes for port in self.port_number] + switches + self.nodes

    @functools.cached_property
    def number(self) -> dict[str, int]:
        """The number of every part, by its name."""
        return {name: at for at, name in enumerate(self.names)}

    def _compile(self) -> None:
        """Derive from the graph where every port leads, as numbers of parts. [node, port]: the port of a node that
        leads to the switch that this one leads to on a regular machine (-1: none), and the switch at the far end."""
        count, numbers = len(self.nodes), {port: at for at, port in enumerate(self.paths)}
        regular = np.arange(len(self.paths), dtype=np.int32)
        self._port_in_place: Parts = np.tile(regular, (count, 1))
        self._far: Parts = np.full((count, len(self.paths)), -1, np.int32)
        self._near: Parts = np.full((count, len(self.port_number)), -1, np.int32)
        for at, node in enumerate(self.nodes):
            for port, to in self.supernode.rewired.get(node, {}).items():
                if port in numbers and to != port and self._port_in_place[at, numbers[port]] == numbers[port]:
                    self._port_in_place[at, numbers[port]] = -1
            for port, to in self.supernode.rewired.get(node, {}).items():
                if to in numbers and self._port_in_place[at, numbers[to]] < 0:
                    self._port_in_place[at, numbers[to]] = numbers[port]
            for link in self.supernode.links(node):
                if link.port in self.port_number:
                    near, far = (self.number.get(end, -1) for end in link.ends)
                    self._near[at, self.port_number[link.port]] = near if link.kind == "l1-l2" else far
                    if link.port in numbers:
                        self._far[at, numbers[link.port]] = far

    @property
    def probes_per_round(self) -> int:
        """Probes that a node sends in a round."""
        return len(self.paths) if len(self.nodes) > 1 else 0

    def link(self, part: int) -> bool:
        return part < self._first_switch

    def target(self, node: str, number: int, path: int) -> str:
        """The peer that a node's probe over that path targets in that round."""
        return self.names[self.parts(number)[self.index[node], path, -2]]

    def links(self, node: str, number: int, path: int) -> list[str]:
        """The links that a node's probe over that path uses in that round."""
        crossed = self.parts(number)[self.index[node], path, :LINK_COLUMNS]
        return [self.names[part] for part in crossed if part >= 0]

    def _parts(self, number: int) -> Parts:
        """The parts of every probe of a round, by node and path: own link or links, the peer's, the switches between,
        the peer, the node itself; -1 where there is none. A probe and its answer use the same parts."""
        count = len(self.nodes)
        found = np.full((count, self.probes_per_round, LINK_COLUMNS + 5), -1, np.int32)
        if count < 2:
            return found
        path = np.arange(self.probes_per_round, dtype=np.int32)
        source: Parts = np.arange(count, dtype=np.int32)[:, None]
        target: Parts = (source + 1 + (path + 5 * number) % (count - 1)) % count
        out, into = self._port_in_place[source, path], self._port_in_place[target, path]
        found[:, :, 0], found[:, :, 1] = source * self._ports + out, target * self._ports + into
        found[:, :, -2], found[:, :, -1] = self._first_node + target, self._first_node + source
        there = (out >= 0) & (into >= 0)
        there &= self._ub(found, number, source, target, out, into)
        self._rdma(found, source, target, out, into)
        found[~there] = -1
        return found

    def _ub(
        self, found: Parts, number: int, source: Parts, target: Parts, out: Parts, into: Parts
    ) -> NDArray[np.bool_]:
        """Over the dies' ports, which rotate with chip and round, two L1 chips and an L2 chip; and which probes
        exist."""
        uplinks, dies = self._planes * self._chips, self.spec.node.dies
        plane, k = np.divmod(np.arange(uplinks), self._chips)
        here, there = (k + number) % dies, (k + 3 * number + plane + 1) % dies
        first_die = len(self.paths)
        ub, to = found[:, :uplinks], target[:, :uplinks]
        from_die, to_die = first_die + here * self._planes + plane, first_die + there * self._planes + plane
        ub[:, :, 2] = source * self._ports + from_die
        ub[:, :, 3] = to * self._ports + to_die
        ub[:, :, 4] = self._near[source, from_die]
        ub[:, :, 5] = self._far[source, out[:, :uplinks]]
        ub[:, :, 6] = self._near[to, to_die]
        exists = np.ones(found.shape[:2], bool)
        exists[:, :uplinks] = (self._near[source, from_die] >= 0) & (self._near[to, to_die] >= 0)
        return exists

    def _rdma(self, found: Parts, source: Parts, target: Parts, out: Parts, into: Parts) -> None:
        """From each port to the same port of the peer, in its own subnet, over the leaves that both lead to."""
        first = self._planes * self._chips
        rdma = slice(first, found.shape[1] - 1)
        found[:, rdma, 4] = self._far[source, out[:, rdma]]
        found[:, rdma, 5] = self._far[target[:, rdma], into[:, rdma]]

    def sent(self, node: str, number: int) -> int:
        """How many probes a node has to send in a round."""
        return int((self.parts(number)[self.index[node], :, -1] >= 0).sum())

    def links_of(self, part: str) -> list[str]:
        """The links that carry nothing when a link or switch does not; [] for a node, whose loss is not attributed to
        links."""
        if "." in part:
            return [part]
        if part in self.index:
            return []
        ports = self.supernode.ports_of(part)
        return [f"{owner}.{port}" for owner in ports if owner in self.index for port in sorted(ports[owner])]
