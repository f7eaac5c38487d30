"""In which order a node's or an RDMA leaf's ports stand in a vector, plane by plane.

Floors, capacities and shares are kept as one vector per owner and plane, so that a check over thousands of links is a
few comparisons of arrays. UB: the 112 uplinks of a node, sub-plane by sub-plane, then the links of its 16 dies, die by
die; RDMA: the 16 die ports of a node, or a leaf's trunks to the spines; VPC: the one card.
"""

from __future__ import annotations

import functools

from matrixcommon.model.planes import Plane
from matrixresource.topology import SupernodeSpec


class PortOrder:
    """Names and places of ports, for one spec."""

    def __init__(self, spec: SupernodeSpec) -> None:
        ub, npus, dies = spec.ub, range(spec.node.npus), range(spec.npu.dies)
        planes = range(ub.sub_planes)
        self.uplinks = tuple(f"ub-p{p}-k{k:02d}" for p in planes for k in range(ub.l2_per_sub_plane))
        self.die_links = tuple(f"npu{n}-die{d}-p{p}" for n in npus for d in dies for p in planes)
        self.nodes: dict[Plane, tuple[str, ...]] = {
            Plane.UB: self.uplinks + self.die_links,
            Plane.RDMA: tuple(f"rdma-npu{n}-die{d}" for n in npus for d in dies),
            Plane.VPC: ("vpc",),
        }
        self.outward = (*self.uplinks, *self.nodes[Plane.RDMA], *self.nodes[Plane.VPC])
        """The ports by which a node reaches others: probes, counters and loads number them in this order."""
        self.chips = ub.l2_per_sub_plane
        self.npus = tuple(f"npu{n}" for n in npus)
        self.dies = tuple(f"npu{n}-die{d}" for n in npus for d in dies)
        self.trunks = tuple(f"spine{spine}" for spine in range(spec.rdma.spines))

    def of(self, plane: Plane, owner: str) -> tuple[str, ...]:
        """The ports of a node, or of an RDMA leaf, on a plane."""
        return self.trunks if plane == Plane.RDMA and is_leaf(owner) else self.nodes[plane]

    def links(self, plane: Plane, owner: str) -> list[str]:
        """The same as names of links."""
        return [f"{owner}.{port}" for port in self.of(plane, owner)]

    @functools.cached_property
    def _places(self) -> dict[str, tuple[Plane, int]]:
        found = {port: (plane, at) for plane, ports in self.nodes.items() for at, port in enumerate(ports)}
        return found | {port: (Plane.RDMA, at) for at, port in enumerate(self.trunks)}

    def place(self, port: str) -> tuple[Plane, int] | None:
        """The plane and the place of a port; None for those that carry no floors (CPU links, die to die)."""
        return self._places.get(port)


def is_leaf(owner: str) -> bool:
    """Whether the owner of a link is an RDMA leaf (`sn0-c03-leaf1`) and no node (`sn0-c03-n2`)."""
    return "-leaf" in owner


def leaf(node: str, subnet: int) -> str:
    """The leaf of a subnet that a node hangs on: its cabinet's."""
    return f"{node.rpartition('-')[0]}-leaf{subnet}"


def subnet_of(leaf: str) -> int:
    return int(leaf.rpartition("leaf")[2])


@functools.cache
def port_order(spec: SupernodeSpec) -> PortOrder:
    return PortOrder(spec)
