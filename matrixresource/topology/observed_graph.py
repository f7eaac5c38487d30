"""The graph of a supernode as it was found: its layout, less what has failed, with moved cables where they lead.

A failed switch and a dark cable are not in the graph, so that no path crosses them; a moved cable joins the port to who
answers there and keeps its name. Vertices of a closed domain bear `closed`. At package level a cable of one die is half
of its NPU's edge, and the edge keeps what the other die has. What was changed stands in the graph's own attributes.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

from matrixresource.topology.deviations import links_of
from matrixresource.topology.layout import Layout, Link
from matrixresource.topology.supernode import Supernode
from matrixresource.topology.versions import Topology

if TYPE_CHECKING:
    import networkx as nx

DIE = re.compile(r"-die\d+")


def graph_as_found(supernode: Supernode, topology: Topology, version: str, level: str = "package") -> nx.Graph:
    """The NetworkX graph at `level` (`package` or `die`) of one supernode in the given topology, called `version`."""
    graph = supernode.graph(level)
    mine = topology.of(supernode.name)
    cables = [each for each in mine.deviations if each.kind != "SwitchFailed"]
    # First everything is unplugged, so that two exchanged cables do not meet in one edge.
    unplugged = [(each, _unplug(graph, _link(supernode.layout, each.part), level)) for each in cables]
    for deviation, edge in unplugged:
        if deviation.peer is not None and edge:
            _plug(graph, edge.pop("near"), deviation.peer, edge)
    graph.remove_nodes_from([each.part for each in mine.deviations if each.kind == "SwitchFailed"])
    for _, attributes in graph.nodes(data=True):
        if supernode.name in mine.closed or attributes.get("cabinet") in mine.closed:
            attributes["closed"] = True
    graph.graph.update(topologyVersion=version, closed=sorted(mine.closed), deviations=mine.wire()["deviations"])
    return graph


def node_link(graph: nx.Graph) -> dict[str, Any]:
    """The graph as node-link JSON."""
    import networkx as nx

    document: dict[str, Any] = nx.node_link_data(graph, edges="edges")
    return document


def graphml(graph: nx.Graph) -> str:
    """The graph as GraphML, whose attributes are plain: lists are written as JSON text."""
    import networkx as nx

    lists = {key: json.dumps(value) for key, value in graph.graph.items() if isinstance(value, list)}
    plain = graph.copy()
    plain.graph.update(lists)
    out = io.BytesIO()
    nx.write_graphml(plain, out)
    return out.getvalue().decode()


def _link(layout: Layout, name: str) -> Link:
    return next(link for link in links_of(layout, name.partition(".")[0]) if link.name == name)


def _unplug(graph: nx.Graph, link: Link, level: str) -> dict[str, Any]:
    """Take a cable out; its attributes and near end, or nothing where the graph has no such edge."""
    near, far = link.ends
    if level == "package":
        near, far = DIE.sub("", near), DIE.sub("", far)
    if not graph.has_edge(near, far):
        return {}
    edge = graph.edges[near, far]
    taken = {**edge, "name": link.name, "capacity_gbps": link.capacity_gbps, "near": near}
    edge["capacity_gbps"] -= link.capacity_gbps
    if edge["capacity_gbps"] <= 0:
        graph.remove_edge(near, far)
    return taken


def _plug(graph: nx.Graph, near: str, peer: str, edge: dict[str, Any]) -> None:
    """Lead a cable to who answers; a second one between the same two adds to the first."""
    if peer not in graph:
        graph.add_node(peer, kind="unknown")
    if graph.has_edge(near, peer):
        there = graph.edges[near, peer]
        there["capacity_gbps"] += edge["capacity_gbps"]
        there["name"] += f"+{edge['name']}"
    else:
        graph.add_edge(near, peer, **edge)
