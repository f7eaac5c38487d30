"""CompiledTopology: a supernode's graph in the form of tables that decisions read.

Compiled from the graph alone: which nodes there are and in which cabinet, the switches, the links of every node and
leaf, and where the graph departs from the regular machine of the spec, that is, missing nodes and switches, and cables
that are missing or lead elsewhere. Names omit the supernode, so that all identical supernodes share one graph and one
compiled form; only deviations are stored for each supernode that has them.

`rewired` is what arrays over ports need: by owner and port, the port in whose place the cable leads (that of the same
switch in the regular machine), or None if it leads nowhere that its plane could use.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx

from matrixresource.topology.deviations import Deviation
from matrixresource.topology.graph import link_edges, supernode_graph
from matrixresource.topology.layout import Layout, Link, Vertex
from matrixresource.topology.regular import STANDARD, SWITCHES, RegularTopology, local_name, regular_topology
from matrixresource.topology.rewiring import apply_deviations, deviating_parts
from matrixresource.topology.spec import SupernodeSpec

Rewired = Mapping[str, Mapping[str, str | None]]


@dataclass(frozen=True, eq=False)
class CompiledTopology:
    """One supernode's graph, ready for queries. `deviations` are those of the graph from the regular machine of
    `spec`."""

    spec: SupernodeSpec
    fingerprint: str
    compute_cabinets: tuple[str, ...]
    communication_cabinets: tuple[str, ...]
    nodes: dict[str, tuple[int, int]]
    """By name: the numbers of the cabinet and of the place in it."""
    switches: dict[str, Vertex]
    links: dict[str, tuple[Link, ...]]
    """By owner: a node, or an RDMA leaf for its trunks."""
    rewired: Rewired
    deviations: frozenset[Deviation]
    endpoints: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """By node and kind (npu, die, cpu), the names."""
    cabinet_of: dict[str, str] = field(default_factory=dict)
    bus_devices: dict[str, str] = field(default_factory=dict)
    """By L2 switch, the bus device that contains it."""

    @property
    def graph(self) -> nx.MultiGraph:
        """The graph, drawn for `STANDARD`; read-only. It takes as much memory as everything compiled from it and is
        rarely needed, so only the last one drawn is kept."""
        return _last_drawn_graph(self.spec, self.deviations)

    @functools.cached_property
    def link_named(self) -> dict[str, Link]:
        return {link.name: link for found in self.links.values() for link in found}

    @functools.cached_property
    def link_names(self) -> dict[str | None, tuple[str, ...]]:
        """By plane, the names of its links in order; those of all planes under None."""
        found: dict[str | None, list[str]] = {None: sorted(self.link_named)}
        for name in found[None]:
            found.setdefault(self.link_named[name].plane, []).append(name)
        return {plane: tuple(names) for plane, names in found.items()}

    @functools.cached_property
    def ports_by_part(self) -> dict[str, dict[str, set[str]]]:
        """By part (die, CPU, switch), the ports that end there, by owner."""
        found: dict[str, dict[str, set[str]]] = {}
        for owner, links in self.links.items():
            for link in links:
                for end in link.ends:
                    found.setdefault(end, {}).setdefault(owner, set()).add(link.port)
        return found

    def ports_of(self, element: str) -> dict[str, set[str]]:
        """The ports, by owner, that belong to an element (`matrixlink/fabric/condition/elements.py` lists the
        elements); empty for an unknown one."""
        if "." in element:
            owner, _, port = element.partition(".")
            if match := re.fullmatch(r"ub-p(\d+)", port):
                plane = int(match.group(1))
                return self._matching_ports(lambda link: link.kind == "l1-l2" and link.sub_plane == plane, [owner])
            return self._matching_ports(lambda link: link.port == port, [owner])
        if match := re.fullmatch(r"(ub|rdma|vpc)(?:-p(\d+))?", element):
            name, number = match.groups()
            return self._matching_ports(lambda link: link.plane == name and number in (None, str(link.sub_plane)))
        if element in self.nodes:
            return self._matching_ports(lambda link: True, [element])
        return merge_ports(self.ports_by_part.get(part, {}) for part in self._parts(element))

    def _parts(self, element: str) -> list[str]:
        """The dies and switches of an element."""
        if element in self.compute_cabinets:
            dies = [die for node in self.nodes if self.cabinet_of[node] == element for die in self._parts_of_node(node)]
            return [*dies, *(each.name for each in self.switches.values() if each.cabinet == element)]
        if element in self.communication_cabinets:
            return [each.name for each in self.switches.values() if each.kind == "l2" and each.cabinet == element]
        if boxed := [switch for switch, box in self.bus_devices.items() if box == element]:
            return boxed
        node = element.rpartition("-npu")[0]
        if node in self.nodes and element in self.endpoints[node]["npu"]:
            return [die for die in self.endpoints[node]["die"] if die.startswith(f"{element}-")]
        return [element] if element in self.switches else []

    def _parts_of_node(self, node: str) -> list[str]:
        return [*self.endpoints[node]["die"], *self.endpoints[node]["cpu"], f"{node}-qingtian"]

    def _matching_ports(
        self, wanted: Callable[[Link], bool], owners: Iterable[str] | None = None
    ) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for owner in self.links if owners is None else owners:
            if ports := {link.port for link in self.links.get(owner, ()) if wanted(link)}:
                found[owner] = ports
        return found

    @functools.cached_property
    def node_uplink_gbps(self) -> dict[str, float]:
        """By node, the combined rate of its UB uplinks."""
        every = [each.name for each in self.switches.values() if each.kind == "l2"]
        return dict.fromkeys(self.nodes, 0.0) | self.uplink_gbps(every)

    @functools.cached_property
    def _uplinks(self) -> dict[str, list[Link]]:
        """By L1 and L2 switch, the uplinks that end there and that their plane can use."""
        found: dict[str, list[Link]] = {}
        for owner, links in self.links.items():
            lost = self.rewired.get(owner, {})
            for link in links:
                if link.kind == "l1-l2" and lost.get(link.port, link.port) is not None:
                    for end in link.ends:
                        found.setdefault(end, []).append(link)
        return found

    def uplink_gbps(self, switches: Iterable[str]) -> dict[str, float]:
        """By node, the combined rate of its uplinks that end at any of those switches."""
        found: dict[str, float] = {}
        for switch in switches:
            for link in self._uplinks.get(switch, ()):
                assert link.node is not None
                found[link.node] = found.get(link.node, 0.0) + link.capacity_gbps
        return found

    def document(self) -> dict[str, Any]:
        """Spec and deviations: everything needed to draw the graph again."""
        numbers = self.spec.model_dump(exclude={"figures"})
        ordered = sorted(self.deviations, key=lambda each: (each.kind, each.part, each.peer or ""))
        return {"spec": numbers, "drawn": [each.wire() for each in ordered]}


def merge_ports(each: Iterable[Mapping[str, Iterable[str]]]) -> dict[str, set[str]]:
    """The ports of several parts, by owner, each once."""
    found: dict[str, set[str]] = {}
    for ports in each:
        for owner, names in ports.items():
            found.setdefault(owner, set()).update(names)
    return found


def compile_spec(spec: SupernodeSpec) -> CompiledTopology:
    """The compiled graph of a supernode built exactly to `spec`, shared within this process."""
    return _compile_cached(spec, frozenset())


def compile_stored(document: Mapping[str, Any]) -> CompiledTopology:
    """The inverse of `CompiledTopology.document`."""
    spec = _spec(json.dumps(document["spec"]))
    return compile_with_deviations(spec, [Deviation(**each) for each in document.get("drawn", ())])


def compile_with_deviations(spec: SupernodeSpec, found: Any) -> CompiledTopology:
    """The compiled graph of a spec's supernode with these deviations (local names)."""
    return _compile_cached(spec, frozenset(found))


@functools.lru_cache(maxsize=8)
def _spec(numbers: str) -> SupernodeSpec:
    return SupernodeSpec(**json.loads(numbers))


GRAPHS_KEPT = 8
"""Compiled graphs to cache; each takes a fifth of a megabyte on top of the others."""


@functools.lru_cache(maxsize=GRAPHS_KEPT)
def _compile_cached(spec: SupernodeSpec, found: frozenset[Deviation]) -> CompiledTopology:
    """Made from the records from which the graph would be drawn. Drawing a graph to read it once takes half a second
    and tens of megabytes, and cables and switches fail all day."""
    return _compile(spec, *deviating_parts(regular_topology(spec), found))


def _draw_graph(spec: SupernodeSpec, found: frozenset[Deviation]) -> nx.MultiGraph:
    graph = supernode_graph(spec, STANDARD)
    return apply_deviations(graph, [each.qualified(STANDARD) for each in found]) if found else graph


_last_drawn_graph = functools.lru_cache(maxsize=1)(_draw_graph)


def compile_graph(graph: nx.MultiGraph, spec: SupernodeSpec) -> CompiledTopology:
    """Compile a checked graph. `spec` is the regular machine that it is drawn on."""
    name = graph.graph.get("supernode", STANDARD)
    if name != STANDARD:
        graph = rename_supernode(graph, STANDARD)
    vertices = {local_name(vertex): local_name(data.get("cabinet", "")) for vertex, data in graph.nodes(data=True)}
    drawn = {local_name(key): (local_name(a), local_name(b)) for a, b, key, _ in link_edges(graph)}
    return _compile(spec, vertices, drawn)


def _compile(
    spec: SupernodeSpec, vertices: Mapping[str, str], drawn: Mapping[str, tuple[str, str]]
) -> CompiledTopology:
    """Compile a supernode that has these vertices (each with its cabinet, if it is in one) and links (by their
    ends)."""
    cut, regular = len(STANDARD) + 1, regular_topology(spec)
    nodes = {node: at for node, at in regular.node_slots.items() if node in vertices}
    cabinet_of = {node: vertices[node] for node in nodes}
    by_owner, rewired, cables = _read_links(regular, vertices, drawn, nodes)
    lost = [
        Deviation("SwitchFailed", each.name)
        for each in regular.vertices.values()
        if each.kind in (*SWITCHES, "fabric")
        and each.name not in vertices
        and (each.node is None or each.node in nodes)
    ]
    absent = [Deviation("NodeAbsent", node) for node in regular.node_slots if node not in nodes]
    found = frozenset([*cables, *lost, *absent])
    layout, cabinets = Layout(spec, STANDARD), set(cabinet_of.values())
    return CompiledTopology(
        spec,
        _fingerprint(spec, found),
        tuple(each[cut:] for each in layout.compute_cabinets() if each[cut:] in cabinets),
        tuple(each[cut:] for each in layout.communication_cabinets()),
        nodes,
        {name: each for name, each in regular.vertices.items() if each.kind in SWITCHES and name in vertices},
        by_owner,
        rewired,
        found,
        _endpoints(regular, vertices, nodes),
        cabinet_of,
        {name: regular.bus_devices[name] for name in regular.bus_devices if name in vertices},
    )


def merge_deviations(drawn: Iterable[Deviation], found: Iterable[Deviation]) -> frozenset[Deviation]:
    """All deviations when agents found `found` on a machine drawn with `drawn`; for the same part, what was found
    counts."""
    newer = {each.part: each for each in found}
    return frozenset([*newer.values(), *(each for each in drawn if each.part not in newer)])


def _read_links(
    regular: RegularTopology,
    vertices: Collection[str],
    drawn: Mapping[str, tuple[str, str]],
    nodes: Collection[str],
) -> tuple[dict[str, tuple[Link, ...]], Rewired, list[Deviation]]:
    """By owner the links that exist; the ports that lead elsewhere; and the cables that deviate, each once."""
    by_owner: dict[str, list[Link]] = {}
    rewired: dict[str, dict[str, str | None]] = {}
    cables: list[Deviation] = []
    for name, usual in regular.links.items():
        owner, _, port = name.partition(".")
        if owner not in vertices or (usual.node is not None and usual.node not in nodes):
            continue
        ends = drawn.get(name)
        if ends is None:
            rewired.setdefault(owner, {})[port] = None
            if usual.ends[0] in vertices and usual.ends[1] in vertices:
                cables.append(Deviation("CableDark", name))
            continue
        far = ends[1] if ends[0] == usual.ends[0] else ends[0]
        link = usual
        if far != usual.ends[1]:
            link = replace(usual, ends=(usual.ends[0], far))
            rewired.setdefault(owner, {})[port] = regular.port_by_ends.get(link.ends)
            cables.append(Deviation("CableMoved", name, far))
        by_owner.setdefault(owner, []).append(link)
    return {owner: tuple(found) for owner, found in by_owner.items()}, rewired, cables


def _endpoints(
    regular: RegularTopology, vertices: Collection[str], nodes: Collection[str]
) -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, list[str]]] = {node: {"npu": [], "die": [], "cpu": []} for node in nodes}
    for name, vertex in regular.vertices.items():
        if vertex.kind in ("die", "cpu") and vertex.node in found and name in vertices:
            of_node = found[vertex.node]
            of_node[vertex.kind].append(name)
            npu = name.rpartition("-die")[0]
            if vertex.kind == "die" and npu not in of_node["npu"]:
                of_node["npu"].append(npu)
    return {node: {kind: tuple(names) for kind, names in kinds.items()} for node, kinds in found.items()}


def _fingerprint(spec: SupernodeSpec, found: frozenset[Deviation]) -> str:
    """The spec's own fingerprint if nothing deviates, else twelve hex digits of both."""
    if not found:
        return spec.fingerprint
    ordered = sorted([each.kind, each.part, each.peer or ""] for each in found)
    return hashlib.sha256(json.dumps([spec.fingerprint, ordered]).encode()).hexdigest()[:12]


def rename_supernode(graph: nx.MultiGraph, name: str) -> nx.MultiGraph:
    """The graph of another, identical supernode."""
    former = graph.graph.get("supernode", STANDARD)
    if former == name:
        return graph
    cut = len(former)

    def here(text: str) -> str:
        return name + text[cut:] if text == former or text.startswith(f"{former}-") else text

    other = nx.MultiGraph(**{**graph.graph, "supernode": name})
    for vertex, data in graph.nodes(data=True):
        named = {key: here(data[key]) for key in ("cabinet", "node") if key in data}
        other.add_node(here(vertex), **{**data, **named})
    for a, b, key, data in graph.edges(keys=True, data=True):
        named = {each: here(data[each]) for each in ("name", "node") if each in data}
        other.add_edge(here(a), here(b), key=here(key), **{**data, **named})
    return other
