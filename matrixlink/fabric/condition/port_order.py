"""The order of a node's or RDMA leaf's ports in vectors, plane by plane.

Floors, capacities and shares are kept as one vector per owner and plane, so that a check over thousands of links is a
few comparisons of arrays. UB: the 112 uplinks of a node, sub-plane by sub-plane, then the links of its 16 dies, die by
die; RDMA: the 16 die ports of a node, or a leaf's trunks to the spines; VPC: the one card.
"""

from __future__ import annotations

import functools
from collections import defaultdict

from matrixcommon.model.planes import Plane
from matrixresource.topology import SupernodeSpec
from matrixresource.topology.regular import regular_topology


class PortOrder:
    """Names and places of ports for one spec, taken from the links of a node and of a leaf of its regular machine."""

    def __init__(self, spec: SupernodeSpec) -> None:
        frame = regular_topology(spec)
        node, leaf = next(iter(frame.node_slots)), next(iter(frame.leaves.values()))
        links = [link for link in frame.links.values() if link.node == node]
        trunks = [link for link in frame.links.values() if link.node is None and leaf in link.ends]
        dies = [name for name, vertex in frame.vertices.items() if vertex.kind == "die" and vertex.node == node]
        uplinks = sorted((link for link in links if link.kind == "l1-l2"), key=lambda link: link.sub_plane or 0)
        die_links = [link for link in links if link.kind == "die-l1"]
        die_links.sort(key=lambda link: (dies.index(link.ends[0]), link.sub_plane))
        self.uplinks = tuple(link.port for link in uplinks)
        self.l2_switches = tuple(link.ends[1] for link in uplinks)
        """Where the uplinks lead, without the supernode's name."""
        self.die_links = tuple(link.port for link in die_links)
        self.nodes: dict[Plane, tuple[str, ...]] = {
            Plane.UB: self.uplinks + self.die_links,
            Plane.RDMA: tuple(link.port for link in links if link.plane == Plane.RDMA),
            Plane.VPC: tuple(link.port for link in links if link.plane == Plane.VPC),
        }
        self.outward_ports = (*self.uplinks, *self.nodes[Plane.RDMA], *self.nodes[Plane.VPC])
        """The ports by which a node reaches others, in the order in which probes, counters and loads number them."""
        self.chips = spec.ub.l2_per_sub_plane
        self.dies = tuple(name.removeprefix(f"{node}-") for name in dies)
        self.npus = tuple(dict.fromkeys(die.rpartition("-")[0] for die in self.dies))
        self.trunks = tuple(link.port for link in trunks)
        self.plane_of = {link.port: Plane(link.plane) for link in (*links, *trunks)}
        """The plane of every port of a node or leaf."""
        beside: dict[str, list[str]] = defaultdict(list)
        for link in links:
            beside[link.ends[0] if link.kind != "die-leaf" else link.ends[0].rpartition("-")[0]].append(link.port)
        self.beside = {port: [other for other in ports if other != port] for ports in beside.values() for port in ports}
        """By port of a node, the other ports that its near end (L1 chip, die, CPU or, on RDMA, NPU) may use instead."""

    def of(self, plane: Plane, of_leaf: bool) -> tuple[str, ...]:
        """The ports of a node, or of an RDMA leaf, on a plane."""
        return self.trunks if of_leaf else self.nodes[plane]

    @functools.cached_property
    def _places(self) -> dict[str, tuple[Plane, int]]:
        found = {port: (plane, at) for plane, ports in self.nodes.items() for at, port in enumerate(ports)}
        return found | {port: (Plane.RDMA, at) for at, port in enumerate(self.trunks)}

    def place(self, port: str) -> tuple[Plane, int] | None:
        """The plane and place of a port; None for ports that carry no floors (CPU links, die to die)."""
        return self._places.get(port)


@functools.cache
def port_order(spec: SupernodeSpec) -> PortOrder:
    return PortOrder(spec)
