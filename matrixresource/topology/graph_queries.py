"""Queries on a supernode's graph for people, answered by NetworkX's own algorithms.

Paths, neighbours, the minimum cut between two places, and the bisection of the UB plane. All of them use the multigraph
that decisions are compiled from, without its containment edges. A node or an NPU stands for its dies, so one can ask
for a path from node to node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx

from matrixcommon.model.errors import InvalidField, NotFound
from matrixresource.topology.graph import link_edges

RATE, LATENCY = "capacity_gbps", "latency_us"
PLANES = ("ub", "rdma", "vpc")


@dataclass(frozen=True)
class PathFound:
    """The shortest path between two parts: what it passes, the links it uses, the number of equally short paths, the
    rate of its slowest link, GB/s each way, and the sum of its links' latencies, microseconds one way."""

    parts: list[str]
    links: list[str]
    ways: int
    gbps: float
    latency_us: float


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of a part, the links to it, and their combined rate."""

    name: str
    kind: str
    links: list[str]
    gbps: float
    plane: str


@dataclass(frozen=True)
class CutFound:
    """The minimum cut between two places: the maximum flow between them, and the links whose removal separates them."""

    gbps: float
    links: list[str]


def simple_graph(graph: nx.MultiGraph, plane: str | None = None) -> nx.Graph:
    """The links of a plane (or all) as a plain graph: those between the same two parts become one edge with their
    names."""
    if plane is not None and plane not in PLANES:
        raise InvalidField(f"{plane!r} is not a plane; use {', '.join(PLANES)}", field="--plane")
    found = nx.Graph()
    for a, b, link, data in link_edges(graph):
        if plane in (None, data["plane"]):
            if found.has_edge(a, b):
                found.edges[a, b]["links"].append(link)
                found.edges[a, b][RATE] += data[RATE]
            else:
                numbers = {RATE: data[RATE], LATENCY: data[LATENCY]}
                found.add_edge(a, b, links=[link], plane=data["plane"], **numbers)
    return found


def parts_of(graph: nx.MultiGraph, name: str, plain: nx.Graph) -> list[str]:
    """The parts that a name stands for in the plain graph: itself, or the dies of an NPU, node or cabinet; on a plane
    without dies, the node's card. Raises NotFound."""
    if name in plain:
        return [name]
    inside = [
        vertex
        for vertex, data in graph.nodes(data=True)
        if vertex in plain
        and data["kind"] in ("die", "qingtian")
        and (name in (data.get("node"), data.get("cabinet")) or vertex.startswith(f"{name}-"))
    ]
    dies = [vertex for vertex in inside if graph.nodes[vertex]["kind"] == "die"]
    if not inside:
        raise NotFound(f"{name[:80]!r} is not in this graph, or not on this plane", field="name")
    return dies or inside


def find_path(graph: nx.MultiGraph, a: str, b: str, plane: str | None = None) -> PathFound:
    """The shortest path from `a` to `b`. Raises NotFound if there is none."""
    plain = simple_graph(graph, plane)
    starts, goals = parts_of(graph, a, plain), parts_of(graph, b, plain)
    if set(starts) & set(goals):
        raise InvalidField(f"{a} and {b} are the same part", field="b")
    start, goal = starts[0], goals[0]
    try:
        parts = nx.shortest_path(plain, start, goal)
    except nx.NetworkXNoPath as error:
        raise NotFound(f"{a} and {b} are not connected{_plane_phrase(plane)}", field="b") from error
    ways = sum(1 for _ in nx.all_shortest_paths(plain, start, goal))
    steps = [plain.edges[pair] for pair in nx.utils.pairwise(parts)]
    slowest, latency_us = min(step[RATE] for step in steps), round(sum(step[LATENCY] for step in steps), 6)
    return PathFound(parts, [step["links"][0] for step in steps], ways, slowest, latency_us)


def find_neighbours(graph: nx.MultiGraph, name: str, plane: str | None = None) -> list[Neighbour]:
    """The neighbours of a part; for a node, the parts outside of it that its own parts are connected to."""
    plain = simple_graph(graph, plane)
    try:
        inside = set(parts_of(graph, name, plain))
    except NotFound:
        if name not in graph:
            raise
        inside = set()
    if name in graph and graph.nodes[name]["kind"] == "node":
        inside = {vertex for vertex, data in graph.nodes(data=True) if data.get("node") == name and vertex in plain}
    found: dict[str, Neighbour] = {}
    for vertex in sorted(inside):
        for other in plain.neighbors(vertex):
            if other not in inside:
                edge, before = plain.edges[vertex, other], found.get(other)
                links, gbps = (before.links, before.gbps) if before else ([], 0.0)
                kind = graph.nodes[other]["kind"]
                found[other] = Neighbour(other, kind, [*links, *edge["links"]], gbps + edge[RATE], edge["plane"])
    return [found[each] for each in sorted(found)]


def find_cut(graph: nx.MultiGraph, a: str, b: str, plane: str | None = None) -> CutFound:
    """The maximum flow from one part to another, and a minimum set of links whose removal stops it."""
    plain = simple_graph(graph, plane)
    starts, goals = parts_of(graph, a, plain), parts_of(graph, b, plain)
    if set(starts) & set(goals):
        raise InvalidField(f"{a} and {b} are the same part", field="b")
    value, (side, _) = nx.minimum_cut(_with_terminals(plain, starts, goals), SOURCE, SINK, capacity=RATE)
    return CutFound(float(value), _links_across(plain, side))


SOURCE, SINK = "", " "


def _with_terminals(plain: nx.Graph, starts: Iterable[str], goals: Iterable[str]) -> nx.Graph:
    """The graph with all starting points joined to one vertex without a capacity limit, and all goals to another."""
    flows = plain.copy()
    flows.add_edges_from((SOURCE, start) for start in starts)
    flows.add_edges_from((goal, SINK) for goal in goals)
    return flows


def _links_across(plain: nx.Graph, side: set[str]) -> list[str]:
    across = nx.edge_boundary(plain, side - {SOURCE, SINK})
    return sorted(link for a, b in across for link in plain.edges[a, b]["links"])


def find_bisection(graph: nx.MultiGraph, plane: str = "ub") -> CutFound:
    """The maximum flow from one half of the nodes to the other, halved in the order of their names."""
    plain = simple_graph(graph, plane)
    nodes = sorted({data["node"] for vertex, data in graph.nodes(data=True) if "node" in data and vertex in plain})
    if len(nodes) < 2:
        raise InvalidField("a bisection needs two nodes", field="plane")
    half = set(nodes[: len(nodes) // 2])
    ends = [
        (vertex, data["node"] in half)
        for vertex, data in graph.nodes(data=True)
        if vertex in plain and data["kind"] in ("die", "qingtian")
    ]
    starts, goals = ([vertex for vertex, here in ends if here is side] for side in (True, False))
    if plane != "ub":
        value, (side, _) = nx.minimum_cut(_with_terminals(plain, starts, goals), SOURCE, SINK, capacity=RATE)
        return CutFound(float(value), _links_across(plain, side))
    # Sub-planes share only the dies, which have no capacity limit, so each is a separate problem.
    total, links = 0.0, list[str]()
    d2d = [(a, b) for a, b in plain.edges if {graph.nodes[a]["kind"], graph.nodes[b]["kind"]} == {"die"}]
    plain.remove_edges_from(d2d)
    for sub_plane in sorted({data["sub_plane"] for _, data in graph.nodes(data=True) if data["kind"] == "l1"}):
        inside = [
            vertex
            for vertex in plain
            if graph.nodes[vertex]["kind"] == "die" or graph.nodes[vertex].get("sub_plane") == sub_plane
        ]
        part = plain.subgraph(inside)
        value, (side, _) = nx.minimum_cut(_with_terminals(part, starts, goals), SOURCE, SINK, capacity=RATE)
        total += value
        links += _links_across(part, side)
    return CutFound(float(total), sorted(links))


def _plane_phrase(plane: str | None) -> str:
    return f" on the {plane} plane" if plane else ""
