"""RegularTopology: the regular machine of a spec, that is, what a graph is compared with.

Names are local: they omit the supernode, so that all supernodes of a spec share one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from matrixresource.topology.graph import all_links, all_vertices
from matrixresource.topology.layout import Layout, Link, Vertex
from matrixresource.topology.spec import SupernodeSpec

SWITCHES = ("l1", "l2", "leaf", "spine")
STANDARD = "sn0"
"""The name of the supernode in shared graphs."""


@dataclass(frozen=True, slots=True)
class RegularTopology:
    """The regular machine of a spec, with local names."""

    vertices: dict[str, Vertex]
    links: dict[str, Link]
    node_slots: dict[str, tuple[int, int]]
    """Every node position of the spec, with the numbers of its cabinet and of its place there."""
    port_by_ends: dict[tuple[str, str], str]
    """By near end and far end of a link, its port."""
    bus_devices: dict[str, str]
    leaves: dict[tuple[str, int], str]
    """By compute cabinet and subnet."""


@functools.lru_cache(maxsize=8)
def regular_topology(spec: SupernodeSpec) -> RegularTopology:
    layout, cut = Layout(spec, STANDARD), len(STANDARD) + 1
    vertices = {vertex.name[cut:]: local_vertex(vertex, cut) for vertex in all_vertices(layout)}
    links = {link.name[cut:]: local_link(link, cut) for link in all_links(layout)}
    slots = {
        node[cut:]: (number, place)
        for number, cabinet in enumerate(layout.compute_cabinets())
        for place, node in enumerate(layout.nodes(cabinet))
    }
    port_by_ends = {link.ends: link.port for link in links.values()}
    ub = spec.ub
    l2_chips = [(p, k) for p in range(ub.sub_planes) for k in range(ub.l2_per_sub_plane)]
    bus_devices = {layout.l2(p, k)[cut:]: layout.bus_device(p, k)[cut:] for p, k in l2_chips}
    leaves = {(each.cabinet or "", each.sub_plane or 0): each.name for each in vertices.values() if each.kind == "leaf"}
    return RegularTopology(vertices, links, slots, port_by_ends, bus_devices, leaves)


def local_name(name: str) -> str:
    """Without the supernode's name; a part of another supernode keeps it."""
    cut = len(STANDARD) + 1
    return name[cut:] if name.startswith(f"{STANDARD}-") else name


def local_vertex(vertex: Vertex, cut: int) -> Vertex:
    node, cabinet = vertex.node and vertex.node[cut:], vertex.cabinet and vertex.cabinet[cut:]
    return replace(vertex, name=vertex.name[cut:], cabinet=cabinet, node=node)


def local_link(link: Link, cut: int) -> Link:
    ends = (link.ends[0][cut:], link.ends[1][cut:])
    node = link.node and link.node[cut:]  # not by `replace`, which takes as long as all else about 13,488 links
    return Link(link.name[cut:], link.kind, ends, link.capacity_gbps, link.latency_us, link.plane, link.sub_plane, node)
