"""Checks of a drawn supernode, with one sentence per fault.

A drawing is compared with the regular machine of its spec: every part has the name, kind and attributes that it has
there, and every link ends at its own port and at a switch that its plane can use, at the rate and latency of its kind.
It may have fewer nodes, switches and cables, and cables may lead to another switch of their sub-plane; on each plane,
all its parts must be connected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from matrixresource.topology.graph import CONTAINERS, CONTAINS, planes_of
from matrixresource.topology.layout import Link, Vertex
from matrixresource.topology.regular import RegularTopology, regular_topology
from matrixresource.topology.spec import SupernodeSpec

KINDS = ("cabinet", "node", "die", "cpu", "l1", "l2", "leaf", "spine", "qingtian", "fabric")
NODE_PARTS = ("die", "cpu", "qingtian")
"""Parts that every drawn node must have; an L1 switch may be missing."""

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GraphFault:
    """`where`: the faulty vertex or link; empty for the drawing as a whole."""

    where: str
    sentence: str


@dataclass(frozen=True)
class Drawing:
    """A document as it was read, before any check: parts drawn twice appear twice."""

    supernode: str
    vertices: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    edges: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def links(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        return (edge for edge in self.edges if edge[2].get("kind") != CONTAINS)


def find_faults(drawing: Drawing, spec: SupernodeSpec) -> list[GraphFault]:
    """Every fault of a drawing, in order; empty if it can be used."""
    regular, name = regular_topology(spec), drawing.supernode
    if not drawing.vertices:
        return [GraphFault("", "the drawing is empty")]
    drawn = dict(drawing.vertices)
    found = [*_duplicates((vertex for vertex, _ in drawing.vertices), "is drawn twice")]
    for vertex, data in drawing.vertices:
        found += _vertex_faults(vertex, data, regular, name)
    found += _node_faults(regular, name, drawn)
    found += _duplicates((str(data["name"]) for _, _, data in drawing.links if data.get("name")), "names two links")
    for a, b, data in drawing.links:
        found += _link_faults(a, b, data, regular, name, drawn)
    return found or list(_disconnected(drawing))


def _duplicates(names: Iterable[str], what: str) -> list[GraphFault]:
    return [GraphFault(name, f"{name} {what}") for name, count in Counter(names).items() if count > 1]


# ---- vertices -------------------------------------------------------------------------------------------------------


def _vertex_faults(vertex: str, data: Attributes, regular: RegularTopology, name: str) -> Iterator[GraphFault]:
    kind = data.get("kind")
    if kind is None:
        yield GraphFault(vertex, f"{vertex} has no kind; it must be one of {', '.join(KINDS)}")
        return
    if kind not in KINDS:
        text = "is an NPU: draw its dies" if kind == "npu" else f"has kind {kind!r}; use one of {', '.join(KINDS)}"
        yield GraphFault(vertex, f"{vertex} {text}")
        return
    if not vertex.startswith(f"{name}-"):
        yield GraphFault(vertex, f"{vertex} is not a part of {name}, the supernode drawn here")
        return
    expected = regular.vertices.get(vertex.removeprefix(f"{name}-"))
    if expected is None:
        yield GraphFault(vertex, f"{vertex} does not belong: the spec has no {kind} of that name")
    elif expected.kind != kind:
        yield GraphFault(vertex, f"{vertex} is drawn as {kind}, but the spec says {expected.kind}")
    else:
        yield from _attribute_faults(vertex, data, expected, name)


def _attribute_faults(vertex: str, data: Attributes, usual: Vertex, name: str) -> Iterator[GraphFault]:
    for key in ("cabinet", "node", "plane", "sub_plane"):
        value = getattr(usual, key)
        if value is None:
            continue
        expected = f"{name}-{value}" if key in CONTAINERS else value
        if key not in data:
            yield GraphFault(vertex, f"{vertex} has no {key}; it must be {expected}")
        elif data[key] != expected:
            yield GraphFault(vertex, f"{vertex} is drawn with {key} {data[key]!r}, but its name says {expected}")


def _node_faults(regular: RegularTopology, name: str, drawn: Attributes) -> Iterator[GraphFault]:
    """A node must be drawn completely or not at all."""
    present = {data.get("node") for data in drawn.values()}
    for local, expected in regular.vertices.items():
        if expected.kind in NODE_PARTS and f"{name}-{expected.node}" in present and f"{name}-{local}" not in drawn:
            yield GraphFault(f"{name}-{expected.node}", f"{name}-{expected.node} is drawn without {name}-{local}")


# ---- links ----------------------------------------------------------------------------------------------------------


def _link_faults(
    a: str, b: str, data: Attributes, regular: RegularTopology, name: str, drawn: Attributes
) -> Iterator[GraphFault]:
    link = data.get("name")
    if not link:
        yield GraphFault(f"{a} - {b}", f"the link between {a} and {b} has no name")
        return
    for end, other in ((a, b), (b, a)):
        if end not in drawn:
            yield GraphFault(link, f"{link} dangles: it leads from {other} to {end}, which is not drawn")
            return
    usual = regular.links.get(str(link).removeprefix(f"{name}-"))
    if usual is None:
        yield GraphFault(link, f"{link} is not the name of any port in the spec")
        return
    yield from _number_faults(str(link), data, usual)
    near, far = f"{name}-{usual.ends[0]}", f"{name}-{usual.ends[1]}"
    if near not in (a, b):
        yield GraphFault(link, f"{link} is a port of {near}, but is drawn between {a} and {b}")
        return
    actual_far = b if a == near else a
    if actual_far != far:
        yield from _far_faults(str(link), actual_far, regular, name, usual)


def _number_faults(link: str, data: Attributes, usual: Link) -> Iterator[GraphFault]:
    for key in ("kind", "plane", "sub_plane"):
        expected = getattr(usual, key)
        if expected is not None and key not in data:
            yield GraphFault(link, f"{link} has no {key}; it must be {expected}")
        elif expected is not None and data[key] != expected:
            yield GraphFault(link, f"{link} is drawn with {key} {data[key]!r}, but its name says {expected}")
    for key, unit in (("capacity_gbps", "GB/s"), ("latency_us", "us")):
        number, expected = data.get(key), getattr(usual, key)
        if number is None:
            yield GraphFault(link, f"{link} has no {key}; {usual.kind} has {expected:g}")
        elif not isinstance(number, int | float) or abs(number - expected) > 1e-6:
            text = f"{link} is drawn at {number} {unit}; {usual.kind} of the {usual.plane} plane has {expected:g}"
            yield GraphFault(link, text)


def _far_faults(link: str, actual_far: str, frame: RegularTopology, name: str, usual: Link) -> Iterator[GraphFault]:
    """A cable may lead to another switch of the same kind and sub-plane as in the regular machine."""
    other, regular = frame.vertices.get(actual_far.removeprefix(f"{name}-")), frame.vertices[usual.ends[1]]
    if usual.kind != "l1-l2":
        yield GraphFault(
            link, f"{link} leads to {actual_far}; only uplinks may be moved, so it must lead to {name}-{regular.name}"
        )
    elif other is None or (other.kind, other.sub_plane) != (regular.kind, regular.sub_plane):
        text = f"{link} leads to {actual_far}, which is not an L2 switch of sub-plane {regular.sub_plane}"
        yield GraphFault(link, text)


# ---- the whole ------------------------------------------------------------------------------------------------------


def _disconnected(drawing: Drawing) -> Iterator[GraphFault]:
    """On each plane, everything drawn must be connected."""
    for plane in ("ub", "rdma", "vpc"):
        graph = nx.Graph()
        graph.add_nodes_from(vertex for vertex, data in drawing.vertices if plane in planes_of(dict(data)))
        graph.add_edges_from((a, b) for a, b, data in drawing.links if data["plane"] == plane)
        parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
        if len(parts) > 1:
            apart = min(parts[1])
            others = f" and {len(parts[1]) - 1} more" if len(parts[1]) > 1 else ""
            text = f"the {plane} plane is in {len(parts)} pieces: {apart}{others} not connected to {min(parts[0])}"
            yield GraphFault(apart, text)
