"""The graph with what deviates: cables that are dark or lead elsewhere, switches and nodes that are not there.

It does not matter whether agents found it so or a user drew it so: both come out as the same deviations, and
`apply_deviations` makes the one graph of the other. A failed switch and a dark cable are not in the graph, so that no
path crosses them; a moved cable joins the port to who answers there and keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import ends_of_links


def apply_deviations(graph: nx.MultiGraph, found: Iterable[Deviation]) -> nx.MultiGraph:
    """The graph with those deviations. The one that is given stays as it is."""
    found = list(found)
    graph = graph.copy()
    if not found:
        return graph
    ends, taken = ends_of_links(graph), []
    for each in found:  # first everything is unplugged, so that two cables may be exchanged
        if each.part in ends and each.kind in ("CableDark", "CableMoved"):
            a, b = ends[each.part]
            near = a if a != _far_end(graph, a, b) else b
            taken.append((each, near, dict(graph.edges[a, b, each.part])))
            graph.remove_edge(a, b, key=each.part)
    for each, near, about in taken:
        if each.peer is not None:
            if each.peer not in graph:
                graph.add_node(each.peer, kind="unknown")
            graph.add_edge(near, each.peer, key=each.part, **about, moved=True)
    graph.remove_nodes_from([each.part for each in found if each.kind == "SwitchFailed"])
    absent = {each.part for each in found if each.kind == "NodeAbsent"}
    graph.remove_nodes_from(
        [name for name, about in graph.nodes(data=True) if name in absent or about.get("node") in absent]
    )
    return graph


RANK = {"die": 0, "cpu": 0, "qingtian": 0, "l1": 1, "leaf": 1, "l2": 2, "spine": 2, "fabric": 2}


def _far_end(graph: nx.MultiGraph, a: str, b: str) -> str:
    """Of a cable's ends the one that is further from the endpoints: who answers there is what may change."""
    here, there = (RANK.get(graph.nodes[end]["kind"], 3) for end in (a, b))
    return b if there >= here else a
