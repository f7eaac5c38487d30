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

import re
from collections.abc import Callable, Iterable, Mapping

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric, plane_of_port
from matrixlink.fabric.condition.port_order import is_leaf
from matrixresource.topology import Supernode
from matrixresource.topology.supernode import UnknownPart

Ports = dict[str, set[str]]

ACCEPTED = "a link, switch, node, NPU, cabinet, bus device, sub-plane (sn0-ub-p3) or plane (ub, sn0-ub)"


def ports_of(fabric: Fabric, element: str) -> Ports:
    """The ports, by owner, that go with an element. Raises UnknownPart."""
    if element in set(Plane):
        return together(_plane(fabric, supernode, element) for supernode in fabric.supernodes.values())
    supernode = fabric.supernodes.get(re.split(r"[-.]", element)[0])
    if supernode is None:
        raise UnknownPart(element)
    for pattern, find in _KINDS:
        if found := re.fullmatch(pattern, element):
            ports = find(fabric, supernode, *found.groups())
            if ports:
                return ports
    raise UnknownPart(element)


def all_ports(fabric: Fabric, elements: Iterable[str], field: str) -> Ports:
    """The ports of all elements together. Raises InvalidField with the place in the list."""
    found: list[Ports] = []
    for at, element in enumerate(elements):
        try:
            found.append(ports_of(fabric, element))
        except UnknownPart as unknown:
            raise InvalidField(
                f"the fabric has no {element[:80]!r}; name {ACCEPTED}", field=f"{field}[{at}]"
            ) from unknown
    return together(found)


def together(each: Iterable[Mapping[str, Iterable[str]]]) -> Ports:
    """The ports of several elements: each once."""
    found: Ports = {}
    for ports in each:
        for owner, names in ports.items():
            found.setdefault(owner, set()).update(names)
    return found


def _some(fabric: Fabric, owners: Iterable[str], wanted: Callable[[str], bool]) -> Ports:
    ports = {port for port in fabric.built if wanted(port)}
    return {owner: set(ports) for owner in owners if fabric.has(owner)} if ports else {}


def _leaves(supernode: Supernode, subnet: int | None = None) -> list[str]:
    layout, spec = supernode.layout, supernode.spec
    subnets = range(spec.rdma.subnets) if subnet is None else [subnet]
    return [layout.leaf(cabinet, each) for cabinet in supernode.compute_cabinets() for each in subnets]


def _link(fabric: Fabric, supernode: Supernode, owner: str, port: str) -> Ports:
    if fabric.has(owner):
        return {owner: {port}} if port in fabric.built else {}
    return {owner: {port}} if owner in _leaves(supernode) and port in fabric.ports.trunks else {}


def _uplinks(fabric: Fabric, supernode: Supernode, node: str, sub_plane: str) -> Ports:
    return _some(fabric, [node], lambda port: port.startswith(f"ub-p{sub_plane}-"))


def _l1(fabric: Fabric, supernode: Supernode, node: str, sub_plane: str) -> Ports:
    return _some(fabric, [node], lambda port: _in_sub_plane(port, sub_plane))


def _in_sub_plane(port: str, sub_plane: str) -> bool:
    return port.startswith(f"ub-p{sub_plane}-") or port.endswith(f"-p{sub_plane}")


def _l2(fabric: Fabric, supernode: Supernode, sub_plane: str, chip: str) -> Ports:
    return _some(fabric, supernode.nodes(), lambda port: port == f"ub-p{sub_plane}-k{chip}")


def _node(fabric: Fabric, supernode: Supernode, node: str) -> Ports:
    return _some(fabric, [node], lambda port: True)


def _npu(fabric: Fabric, supernode: Supernode, node: str, npu: str) -> Ports:
    return _some(fabric, [node], lambda port: f"npu{npu}" in port.split("-"))


def _leaf(fabric: Fabric, supernode: Supernode, cabinet: str, subnet: str) -> Ports:
    name = f"{cabinet}-leaf{subnet}"
    if name not in _leaves(supernode):
        return {}
    die = re.compile(rf"rdma-npu\d+-die{subnet}")
    ports = _some(fabric, supernode.nodes(cabinet), lambda port: bool(die.fullmatch(port)))
    return {name: set(fabric.ports.trunks)} | ports


def _spine(fabric: Fabric, supernode: Supernode, spine: str) -> Ports:
    port = f"spine{spine}"
    return {leaf: {port} for leaf in _leaves(supernode)} if port in fabric.ports.trunks else {}


def _bus_device(fabric: Fabric, supernode: Supernode, device: str) -> Ports:
    return _l2_where(fabric, supernode, lambda p, k: supernode.layout.bus_device(p, k) == device)


def _cabinet(fabric: Fabric, supernode: Supernode, cabinet: str) -> Ports:
    if cabinet in supernode.communication_cabinets():
        return _l2_where(fabric, supernode, lambda p, k: supernode.layout.l2_cabinet(p, k) == cabinet)
    if cabinet not in supernode.compute_cabinets():
        return {}
    trunks = set(fabric.ports.trunks)
    leaves = {leaf: trunks for leaf in _leaves(supernode) if leaf.startswith(f"{cabinet}-")}
    return together([leaves, _some(fabric, supernode.nodes(cabinet), lambda port: True)])


def _l2_where(fabric: Fabric, supernode: Supernode, chosen: Callable[[int, int], bool]) -> Ports:
    ub = supernode.spec.ub
    chips = [(p, k) for p in range(ub.sub_planes) for k in range(ub.l2_per_sub_plane) if chosen(p, k)]
    gone = {f"ub-p{p}-k{k:02d}" for p, k in chips}
    return _some(fabric, supernode.nodes(), lambda port: port in gone)


def _sub_plane(fabric: Fabric, supernode: Supernode, plane: str, sub_plane: str) -> Ports:
    if plane == Plane.UB:
        return _some(fabric, supernode.nodes(), lambda port: _in_sub_plane(port, sub_plane))
    leaves = [leaf.rpartition("-leaf")[0] for leaf in _leaves(supernode, int(sub_plane))]
    return together(_leaf(fabric, supernode, cabinet, sub_plane) for cabinet in leaves)


def _plane(fabric: Fabric, supernode: Supernode, plane: str) -> Ports:
    nodes = _some(fabric, supernode.nodes(), lambda port: plane_of_port(port) == plane)
    trunks = {leaf: set(fabric.ports.trunks) for leaf in _leaves(supernode)} if plane == Plane.RDMA else {}
    return nodes | trunks


def _supernode(fabric: Fabric, supernode: Supernode) -> Ports:
    return together(_plane(fabric, supernode, plane) for plane in Plane)


_NODE = r"sn\d+-c\d+-n\d+"
_KINDS: tuple[tuple[str, Callable[..., Ports]], ...] = (
    (rf"({_NODE})\.ub-p(\d+)", _uplinks),
    (r"([^.]+)\.([^.]+)", _link),
    (rf"({_NODE})-l1p(\d+)", _l1),
    (r"sn\d+-l2p(\d+)-k(\d+)", _l2),
    (rf"({_NODE})", _node),
    (rf"({_NODE})-npu(\d+)", _npu),
    (r"(sn\d+-c\d+)-leaf(\d+)", _leaf),
    (r"sn\d+-spine(\d+)", _spine),
    (r"(sn\d+-c\d+-bus\d+)", _bus_device),
    (r"(sn\d+-c\d+)", _cabinet),
    (r"sn\d+-(ub|rdma)-p(\d+)", _sub_plane),
    (r"sn\d+-(ub|rdma|vpc)", _plane),
    (r"sn\d+", _supernode),
)


def by_plane(ports: Mapping[str, Iterable[str]]) -> dict[Plane, int]:
    """How many of some ports each plane has."""
    count = dict.fromkeys(Plane, 0)
    for owner, names in ports.items():
        for port in names:
            count[Plane.RDMA if is_leaf(owner) else Plane(plane_of_port(port))] += 1
    return count
