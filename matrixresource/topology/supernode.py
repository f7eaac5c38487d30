"""Supernode: read-only queries on one CloudMatrix384.

What it contains, how it is wired, and how fast each link is. Answers come from the compiled form of its graph
(`compiled.py`), which identical supernodes share; here the supernode's name is added. Health and holders are not known
here: they belong to the inventory and to MatrixLink.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from matrixcommon.model.errors import NotFound
from matrixresource.topology.compiled import (
    CompiledTopology,
    compile_spec,
    compile_with_deviations,
    merge_deviations,
    rename_supernode,
)
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import at_level
from matrixresource.topology.layout import Link, Vertex
from matrixresource.topology.loading import load_spec
from matrixresource.topology.regular import regular_topology
from matrixresource.topology.spec import SupernodeSpec

if TYPE_CHECKING:
    import networkx as nx

QUALIFIED_NAME = re.compile(r"sn\d+-")
"""Matches the name of a part of another supernode; local names have no supernode in front."""


class UnknownPart(NotFound):
    """No cabinet, node, switch or link of that name is in this supernode."""

    def __init__(self, part: str) -> None:
        super().__init__(f"{part[:80]!r} is not in this supernode", field="name")


class Supernode:
    """One supernode by name. Immutable: two with the same name and graph have the same `topology_version`.

    Without a compiled topology it is wired as its spec says.
    """

    def __init__(
        self, name: str = "sn0", spec: SupernodeSpec | None = None, topology: CompiledTopology | None = None
    ) -> None:
        self.name = name
        self.topology = topology or compile_spec(spec or load_spec())
        self.spec = self.topology.spec
        self._own_links: dict[str, tuple[Link, ...]] = {}

    @property
    def topology_version(self) -> str:
        return f"{self.name}-{self.topology.fingerprint}"

    def with_deviations(self, found: Iterable[Deviation]) -> Supernode:
        """This supernode with further deviations, as agents found them."""
        mine = frozenset(each.unqualified(self.name) for each in found)
        if mine <= self.topology.deviations:
            return self
        return Supernode(
            self.name, topology=compile_with_deviations(self.spec, merge_deviations(self.topology.deviations, mine))
        )

    # ---- what is in it ----------------------------------------------------------------------------------------------

    def cabinets(self) -> list[str]:
        """All cabinets; the communication cabinets come last."""
        return self.compute_cabinets() + self.communication_cabinets()

    def compute_cabinets(self) -> list[str]:
        return [self._qualified(cabinet) for cabinet in self.topology.compute_cabinets]

    def communication_cabinets(self) -> list[str]:
        return [self._qualified(cabinet) for cabinet in self.topology.communication_cabinets]

    def nodes(self, cabinet: str | None = None) -> list[str]:
        """Every node, or those of one cabinet (none in a communication cabinet)."""
        if cabinet is None:
            return list(self._nodes)
        if cabinet not in self.cabinets():
            raise UnknownPart(cabinet)
        return [node for node in self._nodes if self.cabinet_of(node) == cabinet]

    @functools.cached_property
    def slots(self) -> dict[str, int]:
        """Every node position of the spec, drawn or not, with its number: the index used by arrays over nodes."""
        return {self._qualified(node): number for number, node in enumerate(regular_topology(self.spec).node_slots)}

    def cabinet_of(self, node: str) -> str:
        return self._nodes[self._checked_node(node)]

    @functools.cached_property
    def leaves(self) -> dict[str, tuple[str, ...]]:
        """By compute cabinet, the RDMA leaves of the spec, drawn or not, one per subnet."""
        leaves, subnets = regular_topology(self.spec).leaves, range(self.spec.rdma.subnets)
        cabinets = dict.fromkeys(cabinet for cabinet, _ in leaves)
        return {
            self._qualified(each): tuple(self._qualified(leaves[each, subnet]) for subnet in subnets)
            for each in cabinets
        }

    def owns(self, part: str) -> bool:
        """Whether the name is that of a part of this supernode, existing or not."""
        return part == self.name or part.startswith((f"{self.name}-", f"{self.name}."))

    def npus(self, node: str) -> list[str]:
        return self._endpoints(node, "npu")

    def dies(self, node: str) -> list[str]:
        return self._endpoints(node, "die")

    def cpus(self, node: str) -> list[str]:
        return self._endpoints(node, "cpu")

    def l1_switches(self, sub_plane: int | None = None, node: str | None = None) -> list[str]:
        """L1 switches, of one sub-plane or node if given."""
        where = None if node is None else self._local(self._checked_node(node))
        plane = None if sub_plane is None else self._checked_sub_plane(sub_plane)
        return [
            self._qualified(each.name)
            for each in self.topology.switches.values()
            if each.kind == "l1" and where in (None, each.node) and plane in (None, each.sub_plane)
        ]

    def l2_switches(self, sub_plane: int | None = None) -> list[str]:
        plane = None if sub_plane is None else self._checked_sub_plane(sub_plane)
        found = self.topology.switches.values()
        return [self._qualified(each.name) for each in found if each.kind == "l2" and plane in (None, each.sub_plane)]

    def switches(self, plane: str | None = None) -> list[Vertex]:
        """The switches of the UB and RDMA planes; the VPC plane's fabric is outside the supernode."""
        return [self._qualified_vertex(each) for each in self.topology.switches.values() if plane in (None, each.plane)]

    def bus_device(self, l2: str) -> str:
        """The bus device that contains an L2 switch, for example `sn0-c13-bus4`."""
        return self._qualified(self.topology.bus_devices[self._local(l2)])

    # ---- what is wired to what --------------------------------------------------------------------------------------

    def links(self, node: str | None = None, plane: str | None = None) -> list[Link]:
        """Links at die level: a node's own, or all links including the trunks between RDMA switches; of one plane if
        given."""
        if node is not None:
            owners: Iterable[str] = [self._local(self._checked_node(node))]
        else:
            owners = self.topology.links
        every = self.topology.links
        return [self._qualified_link(link) for owner in owners for link in every[owner] if plane in (None, link.plane)]

    def own_links(self, node: str) -> tuple[Link, ...]:
        """A node's own links on all planes; built once, because every emulated node keeps them for its lifetime."""
        if node not in self._own_links:
            self._own_links[node] = tuple(self.links(node))
        return self._own_links[node]

    def link_names_after(self, after: str, plane: str | None = None) -> Iterator[str]:
        """The names of links, of one plane if given, that come after this one in order."""
        names, prefix = self.topology.link_names.get(plane, ()), f"{self.name}-"
        if after.startswith(prefix):
            first = bisect_right(names, after.removeprefix(prefix))
        else:
            first = 0 if after < prefix else len(names)
        return (f"{prefix}{names[at]}" for at in range(first, len(names)))

    def link(self, name: str) -> Link:
        """The link of that name. Raises UnknownPart."""
        found = self.topology.link_named.get(self._local(name)) if name.startswith(f"{self.name}-") else None
        if found is None:
            raise UnknownPart(name)
        return self._qualified_link(found)

    def has_link(self, name: str) -> bool:
        return self._local(name) in self.topology.link_named

    @functools.cached_property
    def link_counts(self) -> Counter[str]:
        """How many links each plane has."""
        return Counter(str(link.plane) for link in self.topology.link_named.values())

    @functools.cached_property
    def rewired(self) -> dict[str, dict[str, str | None]]:
        """By node or leaf, the ports whose cable leads elsewhere, with the port in whose place it leads; None if to
        nothing."""
        return {self._qualified(owner): dict(ports) for owner, ports in self.topology.rewired.items()}

    def ports_of(self, element: str) -> dict[str, set[str]]:
        """The ports, by node or leaf, that belong to an element of this supernode, or to all of it; none for an unknown
        element."""
        local = "" if element == self.name else self._local(element)
        if local:
            found = self.topology.ports_of(local)
        else:
            found = {owner: {link.port for link in links} for owner, links in self.topology.links.items()}
        return {self._qualified(owner): set(ports) for owner, ports in found.items()}

    # ---- as a graph -------------------------------------------------------------------------------------------------

    def model_graph(self) -> nx.MultiGraph:
        """The graph itself, with this supernode's name; read-only."""
        return rename_supernode(self.topology.graph, self.name)

    def graph(self, level: str = "die", plane: str | None = None) -> nx.Graph:
        """The graph of one plane, or of all three, as a plain graph. `level` is `die` or `package`."""
        return at_level(self.model_graph(), level, plane)

    # ---- small helpers ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _nodes(self) -> dict[str, str]:
        """The full name of each node, with that of its cabinet."""
        return {self._qualified(node): self._qualified(self.topology.cabinet_of[node]) for node in self.topology.nodes}

    def _qualified(self, local: str) -> str:
        return local if local.startswith("sn") and QUALIFIED_NAME.match(local) else f"{self.name}-{local}"

    def _local(self, name: str) -> str:
        return name.removeprefix(f"{self.name}-")

    def _qualified_vertex(self, each: Vertex) -> Vertex:
        cabinet, node = each.cabinet and self._qualified(each.cabinet), each.node and self._qualified(each.node)
        return replace(each, name=self._qualified(each.name), cabinet=cabinet, node=node)

    def _qualified_link(self, link: Link) -> Link:
        prefix = self.name
        a, b = link.ends
        return Link(
            f"{prefix}-{link.name}", link.kind, (f"{prefix}-{a}", self._qualified(b)), link.capacity_gbps,
            link.latency_us, link.plane, link.sub_plane, link.node and f"{prefix}-{link.node}",
        )  # fmt: skip

    def _endpoints(self, node: str, kind: str) -> list[str]:
        return [self._qualified(name) for name in self.topology.endpoints[self._local(self._checked_node(node))][kind]]

    def _checked_node(self, node: str) -> str:
        if node not in self._nodes:
            raise UnknownPart(node)
        return node

    def _checked_sub_plane(self, sub_plane: int) -> int:
        if not 0 <= sub_plane < self.spec.ub.sub_planes:
            raise UnknownPart(f"sub-plane {sub_plane}")
        return sub_plane
