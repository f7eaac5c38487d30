"""Supernode: read-only questions asked of one CloudMatrix384.

What is in it, what is wired to what, how fast a link is, and what is lost when a cabinet, node or switch goes. Answers
come from the layout's arithmetic, so a process that only asks these loads no graph library; `graph()` and the two
exports build the NetworkX graph when they are asked. Nothing here knows of health or holders: that is the inventory's
and MatrixLink's.
"""

from __future__ import annotations

import functools
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrixcommon.model.errors import NotFound
from matrixresource.topology.layout import Layout, Link, Vertex
from matrixresource.topology.spec import SupernodeSpec

if TYPE_CHECKING:
    import networkx as nx

PLANES = ("ub", "rdma", "vpc")


class UnknownPart(NotFound):
    """No cabinet, node, switch or link of that name is in this supernode."""

    def __init__(self, part: str) -> None:
        super().__init__(f"{part[:80]!r} is no part of this supernode", field="name")


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """What the loss of one part takes away. Rates are GB/s each way; `uplink_gbps_lost` is per node still alive."""

    part: str
    kind: str
    nodes_lost: tuple[str, ...] = ()
    nodes_degraded: tuple[str, ...] = ()
    npus_lost: int = 0
    switches_lost: tuple[str, ...] = ()
    uplink_gbps_lost: float = 0.0
    uplink_gbps_left: float = 0.0
    npu_gbps_left: float = 0.0


class Supernode:
    """One supernode by name. Immutable: two with the same name and spec have the same `topology_version`."""

    def __init__(self, name: str = "sn0", spec: SupernodeSpec | None = None) -> None:
        self.name = name
        self.spec = spec or SupernodeSpec.load()
        self.layout = Layout(self.spec, name)

    @property
    def topology_version(self) -> str:
        return f"{self.name}-{self.spec.fingerprint}"

    # ---- what is in it ----------------------------------------------------------------------------------------------

    def cabinets(self) -> list[str]:
        """All cabinets; the communication cabinets come last."""
        return self.layout.compute_cabinets() + self.layout.communication_cabinets()

    def compute_cabinets(self) -> list[str]:
        return self.layout.compute_cabinets()

    def communication_cabinets(self) -> list[str]:
        return self.layout.communication_cabinets()

    def nodes(self, cabinet: str | None = None) -> list[str]:
        """Every node, or those of one cabinet (none in a communication cabinet)."""
        if cabinet is None:
            return list(self._nodes)
        if cabinet not in self.cabinets():
            raise UnknownPart(cabinet)
        return self.layout.nodes(cabinet) if cabinet in self.layout.compute_cabinets() else []

    def cabinet_of(self, node: str) -> str:
        return self._known(node).rpartition("-")[0]

    def npus(self, node: str) -> list[str]:
        return self.layout.npus(self._known(node))

    def dies(self, node: str) -> list[str]:
        return self.layout.dies(self._known(node))

    def cpus(self, node: str) -> list[str]:
        return self.layout.cpus(self._known(node))

    def l1_switches(self, sub_plane: int | None = None, node: str | None = None) -> list[str]:
        """L1 switches, of one sub-plane or node if given."""
        nodes = self._nodes if node is None else [self._known(node)]
        planes = range(self.spec.ub.sub_planes) if sub_plane is None else [self._plane(sub_plane)]
        return [self.layout.l1(n, p) for n in nodes for p in planes]

    def l2_switches(self, sub_plane: int | None = None) -> list[str]:
        planes = range(self.spec.ub.sub_planes) if sub_plane is None else [self._plane(sub_plane)]
        return [self.layout.l2(p, k) for p in planes for k in range(self.spec.ub.l2_per_sub_plane)]

    def switches(self, plane: str | None = None) -> list[Vertex]:
        """The switches of the UB and RDMA planes; the VPC plane's fabric is outside the supernode."""
        found = [*self.layout.ub_switches(), *self.layout.rdma_switches()]
        return [switch for switch in found if plane in (None, switch.plane)]

    # ---- what is wired to what --------------------------------------------------------------------------------------

    def links(self, node: str | None = None, plane: str | None = None) -> list[Link]:
        """Links on die level: a node's own, or everybody's and the trunks between RDMA switches; of one plane if
        given."""
        nodes = self._nodes if node is None else [self._known(node)]
        found: list[Link] = []
        for n in nodes:
            found += self.layout.ub_links(n) if plane in (None, "ub") else ()
            found += self.layout.rdma_links(n) if plane in (None, "rdma") else ()
            found += self.layout.vpc_links(n) if plane in (None, "vpc") else ()
        if node is None and plane in (None, "rdma"):
            found += self.layout.rdma_trunks()
        return found

    def link(self, name: str) -> Link:
        """The link of that name. Raises UnknownPart."""
        owner, _, port = name.partition(".")
        if owner in self._nodes:
            found = self._link_of_node(owner, port)
        elif re.fullmatch(rf"{re.escape(self.name)}-c\d+-leaf\d+", owner):
            found = next((link for link in self.layout.rdma_trunks() if link.name == name), None)
        else:
            found = None
        if found is None:
            raise UnknownPart(name)
        return found

    def _link_of_node(self, node: str, port: str) -> Link | None:
        """As the first node has it, for every node is wired alike: with this node's name, and its cabinet's leaf."""
        like = self._first_nodes_links.get(port)
        if like is None or like.node is None:
            return None
        first, cabinet = like.node, self.cabinet_of(like.node)

        def here(end: str) -> str:
            if end.startswith(f"{first}-"):
                return node + end[len(first) :]
            return self.cabinet_of(node) + end[len(cabinet) :] if end.startswith(f"{cabinet}-leaf") else end

        ends = (here(like.ends[0]), here(like.ends[1]))
        return Link(f"{node}.{port}", like.kind, ends, like.capacity_gbps, like.plane, like.sub_plane, node)

    # ---- what goes with what ----------------------------------------------------------------------------------------

    def blast_radius(self, part: str) -> BlastRadius:
        """What is lost with a compute or communication cabinet, a node, an L1 or an L2 switch. Raises UnknownPart."""
        if part in self.layout.compute_cabinets():
            return self._without_nodes(part, "compute-cabinet", self.layout.nodes(part))
        if part in self._nodes:
            return self._without_nodes(part, "node", [part])
        if part in self.layout.communication_cabinets():
            gone = [v.name for v in self.layout.ub_switches() if v.kind == "l2" and v.cabinet == part]
            return self._without_l2(part, "communication-cabinet", gone)
        if part in self._l2:
            return self._without_l2(part, "l2", [part])
        if match := re.fullmatch(r"(.+)-l1p(\d+)", part):
            node, sub_plane = match.group(1), int(match.group(2))
            if node in self._nodes and sub_plane < self.spec.ub.sub_planes:
                return self._without_l1(part, node)
        raise UnknownPart(part)

    def _without_nodes(self, part: str, kind: str, nodes: list[str]) -> BlastRadius:
        switches = tuple(self.layout.l1(n, p) for n in nodes for p in range(self.spec.ub.sub_planes))
        return BlastRadius(part, kind, tuple(nodes), (), len(nodes) * self.spec.node.npus, switches)

    def _without_l2(self, part: str, kind: str, gone: list[str]) -> BlastRadius:
        lost = len(gone) * self.spec.ub.uplink_gbps
        left = self.spec.node.ub_gbps - lost
        per_npu = left / self.spec.node.npus
        return BlastRadius(part, kind, (), tuple(self._nodes), 0, tuple(gone), lost, left, per_npu)

    def _without_l1(self, part: str, node: str) -> BlastRadius:
        lost = self.spec.ub.l1_uplink_gbps
        left = self.spec.node.ub_gbps - lost
        npu_left = self.spec.npu.ub_gbps - self.spec.npu.dies * self.spec.die.ub_link_gbps
        return BlastRadius(part, "l1", (), (node,), 0, (part,), lost, left, npu_left)

    # ---- as a graph -------------------------------------------------------------------------------------------------

    def graph(self, level: str = "die", plane: str | None = None) -> nx.Graph:
        """The NetworkX graph of one plane, or of all three. `level` is `die` or `package`."""
        from matrixresource.topology import graph as build

        if plane is None:
            return build.build(self.layout, level)
        if plane == "ub":
            return build.build_ub(self.layout, level)
        return build.build_rdma(self.layout, level) if plane == "rdma" else build.build_vpc(self.layout)

    def node_link(self, level: str = "package") -> dict[str, Any]:
        """The graph as node-link JSON, with `topologyVersion` among the graph's attributes."""
        import networkx as nx

        document = nx.node_link_data(self.graph(level), edges="edges")
        document["graph"]["topologyVersion"] = self.topology_version
        return document

    def graphml(self, level: str = "package") -> str:
        """The graph as GraphML text, readable by Gephi, yEd and NetworkX."""
        import networkx as nx

        graph = self.graph(level)
        graph.graph["topologyVersion"] = self.topology_version
        out = io.BytesIO()
        nx.write_graphml(graph, out)
        return out.getvalue().decode()

    # ---- small helpers ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _first_nodes_links(self) -> dict[str, Link]:
        """By port."""
        return {link.port: link for link in self.links(next(iter(self._nodes)))}

    @functools.cached_property
    def _nodes(self) -> dict[str, None]:
        return dict.fromkeys(self.layout.nodes())

    @functools.cached_property
    def _l2(self) -> frozenset[str]:
        return frozenset(self.l2_switches())

    def _known(self, node: str) -> str:
        if node not in self._nodes:
            raise UnknownPart(node)
        return node

    def _plane(self, sub_plane: int) -> int:
        if not 0 <= sub_plane < self.spec.ub.sub_planes:
            raise UnknownPart(f"sub-plane {sub_plane}")
        return sub_plane
