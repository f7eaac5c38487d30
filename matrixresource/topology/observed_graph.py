"""The graph of a supernode in a version of the topology, as shown to people.

It includes what agents found to be different (`rewiring.py`); vertices in a closed domain have the attribute `closed`,
and the graph's own attributes list the changes. At package level a cable of one die is half of its NPU's edge, and if
one is dark the edge keeps the other die's half.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from typing import Any

import networkx as nx

from matrixresource.topology.graph import at_level
from matrixresource.topology.rewiring import apply_deviations
from matrixresource.topology.supernode import Supernode
from matrixresource.topology.versions import Topology


def observed_graph(supernode: Supernode, topology: Topology, version: str, level: str = "package") -> nx.Graph:
    """The graph at `level` (`model`, or drawn as `package` or `die`) of one supernode in the topology called
    `version`."""
    mine = topology.restricted_to(supernode.name)
    graph = apply_deviations(supernode.model_graph(), mine.deviations)
    if level != "model":
        graph = at_level(graph, level)
    _mark_closed(graph, supernode.name, mine.closed)
    graph.graph.update(topologyVersion=version, closed=sorted(mine.closed), deviations=mine.wire()["deviations"])
    return graph


def _mark_closed(graph: nx.Graph, supernode: str, closed: Collection[str]) -> None:
    if not closed:
        return
    for name, attributes in graph.nodes(data=True):
        if supernode in closed or attributes.get("cabinet") in closed or name in closed:
            attributes["closed"] = True


def node_link(graph: nx.Graph) -> dict[str, Any]:
    """The graph as node-link JSON."""
    document: dict[str, Any] = nx.node_link_data(graph, edges="edges")
    return document


def graphml(graph: nx.Graph) -> str:
    """The graph as GraphML, which only has scalar attributes: lists are written as JSON text."""
    lists = {key: json.dumps(value) for key, value in graph.graph.items() if isinstance(value, list)}
    plain = graph.copy()
    plain.graph.update(lists)
    out = io.BytesIO()
    nx.write_graphml(plain, out)
    return out.getvalue().decode()
