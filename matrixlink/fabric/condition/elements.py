"""ports_of: which ports go with a part of the fabric, whatever part it is.

    sn0-c03-n2.ub-p3-k11   a link, or sn0-c03-leaf1.spine4, a trunk     sn0-l2p3-k11   an L2 chip
    sn0-c03-n2.ub-p3       a node's uplinks of one sub-plane            sn0-spine4     an RDMA spine
    sn0-c03-n2-l1p3        an L1 chip, with the links of its dies       sn0-c03-leaf1  an RDMA leaf
    sn0-c03-n2             a node                                       sn0-c13-bus4   a bus device: its L2 chips
    sn0-c03                a cabinet: nodes and leaves, or L2 chips     sn0-ub-p3      a sub-plane, sn0-rdma-p1 a subnet
    sn0-c03-n2-npu5        an NPU                                       sn0-ub, ub     a plane of one supernode, of all

Ports are reported by owner: the node, or for a trunk its leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixresource.topology.compiled import merge_ports
from matrixresource.topology.supernode import UnknownPart

__all__ = ["ACCEPTED", "Ports", "all_ports", "count_by_plane", "merge_ports", "ports_of", "remaining_ports"]

Ports = dict[str, set[str]]

ACCEPTED = "a link, switch, node, NPU, cabinet, bus device, sub-plane (sn0-ub-p3) or plane (ub, sn0-ub)"


def ports_of(fabric: Fabric, element: str) -> Ports:
    """The ports, by owner, that belong to an element in the supernode's graph. Raises UnknownPart."""
    if element in set(Plane):
        return merge_ports(each.ports_of(f"{each.name}-{element}") for each in fabric.supernodes.values())
    supernode = fabric.supernode_of_part(element)
    found = supernode.ports_of(element) if supernode is not None else {}
    if not found:
        raise UnknownPart(element)
    return found


def all_ports(fabric: Fabric, elements: Iterable[str], field: str) -> Ports:
    """The ports of all elements together. Raises InvalidField with the position in the list."""
    found: list[Ports] = []
    for at, element in enumerate(elements):
        try:
            found.append(ports_of(fabric, element))
        except UnknownPart as unknown:
            raise InvalidField(
                f"the fabric has no {element[:80]!r}; give {ACCEPTED}", field=f"{field}[{at}]"
            ) from unknown
    return merge_ports(found)


def remaining_ports(fabric: Fabric, elements: Iterable[str]) -> Ports:
    """The ports of all elements together, among those that the fabric still has."""
    found: list[Ports] = []
    for element in elements:
        with suppress(UnknownPart):
            found.append(ports_of(fabric, element))
    return merge_ports(found)


def count_by_plane(fabric: Fabric, ports: Mapping[str, Iterable[str]]) -> Counter[Plane]:
    """The number of these ports on each plane."""
    return Counter(fabric.ports.plane_of[port] for names in ports.values() for port in names)
