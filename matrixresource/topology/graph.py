"""The supernode as NetworkX graphs, one function per plane and one for everything.

The UB plane comes at two levels: `package` has one vertex per NPU and 56 GB/s links, `die` has one per die, 28 GB/s
links and the link inside each package. Vertex attributes: `kind`, `cabinet`, `node`, `plane`, `sub_plane`. Edge
attributes: `name`, `kind`, `capacity_gbps` (GB/s each way), `plane`, `sub_plane`, `node`. Attributes that do not apply
are left out, so that GraphML can carry every graph. NetworkX is imported on the first build: a service that asks no
graph questions never loads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from matrixcommon.model.errors import InvalidField
from matrixresource.topology.layout import Layout, Link, Vertex

if TYPE_CHECKING:
    import networkx as nx

LEVELS = ("package", "die")


def build_ub(layout: Layout, level: str = "package") -> nx.Graph:
    """The UB plane. At `package` level 1,024 vertices and 9,408 edges, at `die` level 1,408 and 12,480."""
    _check(level)
    links = (link for node in layout.nodes() for link in layout.ub_links(node, level))
    return _graph([*layout.endpoints(level), *layout.ub_switches()], links)


def build_rdma(layout: Layout, level: str = "die") -> nx.Graph:
    """The RDMA plane: NPUs or dies, the leaves of both subnets, the spines. At package level the two ports of an NPU
    lead to different leaves, so no edge is doubled."""
    _check(level)
    endpoints = [vertex for vertex in layout.endpoints(level) if vertex.kind != "cpu"]
    links = [link for node in layout.nodes() for link in layout.rdma_links(node, level)]
    return _graph([*endpoints, *layout.rdma_switches()], [*links, *layout.rdma_trunks()])


def build_vpc(layout: Layout) -> nx.Graph:
    """The VPC plane: the nodes' Qingtian cards and the data-centre fabric as one vertex."""
    return _graph(layout.vpc_vertices(), (link for node in layout.nodes() for link in layout.vpc_links(node)))


def build(layout: Layout, level: str = "die") -> nx.Graph:
    """All three planes over the same endpoints in one graph; edges tell their plane."""
    import networkx as nx

    planes = (build_ub(layout, level), build_rdma(layout, level), build_vpc(layout))
    whole = nx.compose_all(planes)
    whole.graph.update(supernode=layout.name, model=layout.spec.model, level=level)
    return whole


def _graph(vertices: Iterable[Vertex], links: Iterable[Link]) -> nx.Graph:
    import networkx as nx

    graph = nx.Graph()
    for vertex in vertices:
        graph.add_node(vertex.name, **_present(vertex, ("kind", "cabinet", "node", "plane", "sub_plane")))
    for link in links:
        attributes = _present(link, ("name", "kind", "capacity_gbps", "plane", "sub_plane", "node"))
        graph.add_edge(*link.ends, **attributes)
    return graph


def _present(record: Vertex | Link, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name in names if (value := getattr(record, name)) is not None}


def _check(level: str) -> None:
    if level not in LEVELS:
        raise InvalidField(f"{level!r} is neither package nor die", field="level")
