"""Applies deviations to the graph: cables that are dark or lead elsewhere, missing switches and nodes.

It makes no difference whether agents found a deviation or a user drew it: `apply_deviations` turns the regular graph
into the actual one, and `deviating_parts` lists the parts of that graph without drawing it. A failed switch or dark
cable is not in the graph, so no path uses it; a moved cable connects the port to its new neighbour and keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import ends_of_links
from matrixresource.topology.regular import RegularTopology, local_name


def apply_deviations(graph: nx.MultiGraph, found: Iterable[Deviation]) -> nx.MultiGraph:
    """The graph with those deviations; the given graph is not modified."""
    found = list(found)
    graph = graph.copy()
    if not found:
        return graph
    ends, unplugged = ends_of_links(graph), []
    for each in found:  # unplug everything first, so that two cables can be exchanged
        if each.part in ends and each.kind in ("CableDark", "CableMoved"):
            a, b = ends[each.part]
            near = a if a != _far_end(graph, a, b) else b
            unplugged.append((each, near, dict(graph.edges[a, b, each.part])))
            graph.remove_edge(a, b, key=each.part)
    for each, near, data in unplugged:
        if each.peer is not None:
            if each.peer not in graph:
                graph.add_node(each.peer, kind="unknown")
            graph.add_edge(near, each.peer, key=each.part, **data, moved=True)
    graph.remove_nodes_from([each.part for each in found if each.kind == "SwitchFailed"])
    absent = {each.part for each in found if each.kind == "NodeAbsent"}
    graph.remove_nodes_from(
        [name for name, data in graph.nodes(data=True) if name in absent or data.get("node") in absent]
    )
    return graph


def deviating_parts(
    regular: RegularTopology, found: Iterable[Deviation]
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The vertices (each with its cabinet, if it is in one) and the links (with their ends) of the regular machine's
    graph after `apply_deviations`. All names are local."""
    found = list(found)
    vertices = {name: vertex.cabinet or "" for name, vertex in regular.vertices.items()}
    ends = {name: link.ends for name, link in regular.links.items()}
    for each in found:
        if each.kind in ("CableDark", "CableMoved") and (usual := ends.pop(each.part, None)) and each.peer is not None:
            peer = local_name(each.peer)
            ends[each.part] = (usual[0], peer)
            vertices.setdefault(peer, "")
    removed = {each.part for each in found if each.kind == "SwitchFailed"}
    if absent := {each.part for each in found if each.kind == "NodeAbsent"}:
        removed |= {name for name, vertex in regular.vertices.items() if name in absent or vertex.node in absent}
    if removed:
        vertices = {name: cabinet for name, cabinet in vertices.items() if name not in removed}
        ends = {name: (a, b) for name, (a, b) in ends.items() if a not in removed and b not in removed}
    return vertices, ends


DISTANCE_BY_KIND = {"die": 0, "cpu": 0, "qingtian": 0, "l1": 1, "leaf": 1, "l2": 2, "spine": 2, "fabric": 2}


def _far_end(graph: nx.MultiGraph, a: str, b: str) -> str:
    """The end of a cable that is further from the endpoints: this is the one that may change."""
    distance_a, distance_b = (DISTANCE_BY_KIND.get(graph.nodes[end]["kind"], 3) for end in (a, b))
    return b if distance_b >= distance_a else a
