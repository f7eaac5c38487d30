"""Whether a request fits, by trying every set of nodes of the graph: slow, plain, and knowing nothing of the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import networkx as nx

from benchmarks.allocator.capacity_graph import nodes_of, shape_of, used_of
from matrixresource.scheduler.model.request import PlacementRequest


class Search:
    """One question to one graph. Domains are found by walking from a node to what it stands in."""

    def __init__(self, graph: nx.Graph) -> None:
        self.graph, self.shape = graph, shape_of(graph)
        self.nodes = nodes_of(graph)
        self.home: dict[Any, dict[str, Any]] = {node: {"node": node} for node in self.nodes}
        for node in self.nodes:
            cabinet = self._outward(node, "cabinet")
            self.home[node] |= {"cabinet": cabinet, "supernode": self._outward(cabinet, "supernode")}

    def _outward(self, vertex: Any, kind: str) -> Any:
        return next(other for other in self.graph.adj[vertex] if self.graph.nodes[other]["kind"] == kind)

    def fits(self, request: PlacementRequest) -> bool:
        """Whether some set of nodes keeps every rule."""
        return any(self._completed(request, members) for members in self._gangs(request))

    def _gangs(self, request: PlacementRequest) -> Iterator[tuple[Any, ...]]:
        room = [
            node for node in self.nodes if self._has_room(node, request.npus_per_node) and self._allowed(node, request)
        ]
        for members in combinations(room, request.nodes):
            supernodes = Counter(self.home[node]["supernode"] for node in members)
            cabinets = Counter(self.home[node]["cabinet"] for node in members)
            if any(n % request.supernode_block for n in supernodes.values()) or any(
                n % request.cabinet_block for n in cabinets.values()
            ):
                continue
            if request.required_domain and len({self.home[node][request.required_domain] for node in members}) > 1:
                continue
            if (
                request.spread
                and max(Counter(self.home[n][request.spread.over] for n in members).values()) > request.spread.most
            ):
                continue
            yield members

    def _has_room(self, node: Any, per: float) -> bool:
        about = self.graph.nodes[node]
        taken = used_of(about["allocated"]).dies | about["broken"]
        free = [not taken >> 2 * npu & 1 for npu in range(self.shape.npus)]
        other = [not taken >> 2 * npu + 1 & 1 for npu in range(self.shape.npus)]
        whole = sum(a and b for a, b in zip(free, other, strict=True))
        return about["up"] and (whole >= per if per >= 1 else any(free) or any(other))

    def _allowed(self, node: Any, request: PlacementRequest) -> bool:
        for rule, inside in ((request.anti_affinity, False), (request.affinity, True)):
            for name in rule.others if rule else ():
                theirs = {self.home[n][rule.over] for n in self.nodes if self._holds_dies(n, name)}
                if theirs and (self.home[node][rule.over] in theirs) is not inside:
                    return False
        return True

    def _holds_dies(self, node: Any, name: str) -> bool:
        share = self.graph.nodes[node]["allocated"].get(name)
        return share is not None and share.dies > 0 and not share.spare

    def _completed(self, request: PlacementRequest, members: tuple[Any, ...]) -> bool:
        """Whether spares, sockets and memory are to be had beside these members."""
        scopes = {self.home[node][request.required_domain] for node in members} if request.required_domain else {None}
        around = [
            node
            for node in self.nodes
            if not request.required_domain or self.home[node][request.required_domain] in scopes
        ]
        homes = {self.home[node]["supernode"] for node in members}
        beside = [n for n in around if n not in members and self.home[n]["supernode"] in homes]
        spares = sum(self._has_room(node, self.shape.npus) for node in beside)
        up = [self.graph.nodes[node] for node in around if self.graph.nodes[node]["up"]]
        cpus = sum(about["cpus"] - used_of(about["allocated"]).cpus for about in up)
        mem = sum(about["mem_gib"] - used_of(about["allocated"]).mem_gib for about in up)
        return spares >= request.spares and cpus >= request.cpus and mem >= request.mem
