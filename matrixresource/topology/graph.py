"""The supernode as a NetworkX graph: the model that everything else is compiled from, and simpler views of it.

`supernode_graph` builds the graph of a supernode that is wired as its spec says; a drawn one is read by
`graph_document.py` and checked by `graph_checks.py`. It is a multigraph, because two cables may lead to one chip, and a
link's key is its name. Vertices have `kind`, `cabinet`, `node`, `plane`, `sub_plane`; links `name`, `kind`,
`capacity_gbps` (GB/s each way), `plane`, `sub_plane`, `node`. Containment (cabinet, node, part) is expressed by edges
of the kind `contains`, which carry no traffic. Attributes that do not apply are left out, so that GraphML can represent
every graph.

`at_level` draws a plain graph of one plane or of all: `die` has one vertex per die, `package` one per NPU with 56 GB/s
links. Links between the same two vertices become one edge with the sum of their rates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import networkx as nx

from matrixcommon.model.errors import InvalidField
from matrixresource.topology.layout import Layout, Link, Vertex
from matrixresource.topology.spec import SupernodeSpec

LEVELS = ("package", "die")
CONTAINS = "contains"
CONTAINERS = ("cabinet", "node")
DIE = re.compile(r"-die\d+")

VERTEX_ATTRIBUTES = ("kind", "cabinet", "node", "plane", "sub_plane")
LINK_ATTRIBUTES = ("name", "kind", "capacity_gbps", "latency_us", "plane", "sub_plane", "node")


def supernode_graph(spec: SupernodeSpec, name: str = "sn0") -> nx.MultiGraph:
    """The graph of a supernode built to `spec`: 1,553 vertices and 13,488 links for the published machine."""
    layout = Layout(spec, name)
    graph = nx.MultiGraph(supernode=name, model=spec.model)
    graph.add_nodes_from(
        (vertex.name, present_attributes(vertex, VERTEX_ATTRIBUTES)) for vertex in all_vertices(layout)
    )
    for vertex, data in list(graph.nodes(data=True)):
        container = data.get("node") or (data.get("cabinet") if data["kind"] != "cabinet" else None)
        if container is not None:
            graph.add_edge(container, vertex, key=f"{container} {CONTAINS} {vertex}", kind=CONTAINS)
    graph.add_edges_from(
        (*link.ends, link.name, present_attributes(link, LINK_ATTRIBUTES)) for link in all_links(layout)
    )
    return graph


def all_vertices(layout: Layout) -> Iterator[Vertex]:
    """Every part of a supernode, at die level."""
    for cabinet in (*layout.compute_cabinets(), *layout.communication_cabinets()):
        yield Vertex(cabinet, "cabinet")
    for cabinet in layout.compute_cabinets():
        for node in layout.nodes(cabinet):
            yield Vertex(node, "node", cabinet)
    yield from layout.endpoints()
    yield from layout.ub_switches()
    yield from layout.rdma_switches()
    yield from layout.vpc_vertices()


def all_links(layout: Layout) -> Iterator[Link]:
    """Every link at die level: node by node, then the trunks between RDMA switches."""
    for node in layout.nodes():
        yield from layout.ub_links(node)
        yield from layout.rdma_links(node)
        yield from layout.vpc_links(node)
    yield from layout.rdma_trunks()


def present_attributes(record: Vertex | Link, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(record, name)) is not None}


def link_edges(graph: nx.MultiGraph) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """The links: both ends, name, attributes. Containment edges are left out."""
    for a, b, key, data in graph.edges(keys=True, data=True):
        if data.get("kind") != CONTAINS:
            yield a, b, key, data


def ends_of_links(graph: nx.MultiGraph) -> dict[str, tuple[str, str]]:
    """The ends of each link, by name."""
    return {key: (a, b) for a, b, key, _ in link_edges(graph)}


# ---- drawn views ----------------------------------------------------------------------------------------------------


def at_level(graph: nx.MultiGraph, level: str = "die", plane: str | None = None) -> nx.Graph:
    """A plain graph of all planes (or one) with dies or with NPUs."""
    if level not in LEVELS:
        raise InvalidField(f"level must be package or die, not {level!r}", field="level")
    drawn = nx.Graph(**graph.graph, level=level)
    for vertex, data in graph.nodes(data=True):
        if data["kind"] not in CONTAINERS and (plane is None or plane in planes_of(data)):
            npu = level == "package" and data["kind"] == "die"
            drawn.add_node(DIE.sub("", vertex) if npu else vertex, **data | ({"kind": "npu"} if npu else {}))
    for a, b, _, data in link_edges(graph):
        if plane in (None, data["plane"]):
            _add_drawn_edge(drawn, a, b, data, level)
    return drawn


def planes_of(data: dict[str, Any]) -> tuple[str, ...]:
    """The planes of a vertex: a switch has its own, a die two, a CPU one."""
    if "plane" in data:
        return (data["plane"],)
    return {"die": ("ub", "rdma"), "npu": ("ub", "rdma"), "cpu": ("ub",)}.get(data["kind"], ())


def _add_drawn_edge(drawn: nx.Graph, a: str, b: str, data: dict[str, Any], level: str) -> None:
    data = dict(data)
    moved = data.pop("moved", False)
    if level == "package" and data["kind"].startswith("die-"):
        a, b = DIE.sub("", a), DIE.sub("", b)
        if a == b:
            return
        if data["kind"] == "die-l1":
            data["kind"] = "npu-l1"
            if not moved:
                data["name"] = DIE.sub("", data["name"])
        else:
            data["kind"] = "npu-leaf"
    if drawn.has_edge(a, b):
        edge = drawn.edges[a, b]
        edge["capacity_gbps"] += data["capacity_gbps"]
        if data["name"] != edge["name"]:
            edge["name"] += f"+{data['name']}"
    else:
        drawn.add_edge(a, b, **data)
