"""Applies deviations to the graph: cables that are dark or lead elsewhere, missing switches and nodes.

It makes no difference whether agents found a deviation or a user drew it: `apply_deviations` turns the regular graph
into the actual one. A failed switch or dark cable is not in the graph, so no path uses it; a moved cable connects the
port to its new neighbour and keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import ends_of_links


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


DISTANCE_BY_KIND = {"die": 0, "cpu": 0, "qingtian": 0, "l1": 1, "leaf": 1, "l2": 2, "spine": 2, "fabric": 2}


def _far_end(graph: nx.MultiGraph, a: str, b: str) -> str:
    """The end of a cable that is further from the endpoints: this is the one that may change."""
    distance_a, distance_b = (DISTANCE_BY_KIND.get(graph.nodes[end]["kind"], 3) for end in (a, b))
    return b if distance_b >= distance_a else a
