"""The machine and its allocations as a NetworkX graph, and the index of free capacity built from it.

The graph has supernodes, cabinets, nodes and NPUs, each connected to its container. A node has `up` and `allocated`: by
allocation, a Share of dies (a mask), sockets and GiB. Keys are integers and edges share one empty attribute dict, so
that a graph of 20,736 nodes with 165,888 NPUs fits in memory; dies are bits of their node. No decision reads the graph:
the index is checked against it, and users query and draw it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple

import networkx as nx

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.free_capacity_index import FreeCapacityIndex
from matrixresource.scheduler.model.request import Placement
from matrixresource.scheduler.model.state import LedgerState


class Share(NamedTuple):
    """What one allocation holds of one node: dies as a mask, CPU sockets, GiB of memory; whether it is a spare."""

    dies: int = 0
    cpus: int = 0
    mem_gib: int = 0
    spare: bool = False


class DoubleAllocation(ValueError):
    """Two allocations hold the same die, or more sockets or memory are allocated than exist."""


class ContainmentGraph(nx.Graph):
    """A graph whose edges only mean containment, and therefore share one attribute dict."""

    _same: ClassVar[dict[str, Any]] = {}

    def edge_attr_dict_factory(self) -> dict[str, Any]:
        return self._same


def graph_of(shape: ClusterShape, supernodes: Sequence[str] | None = None) -> nx.Graph:
    """The graph of a machine of this shape with everything up and free. `supernodes`: their names, by default sn0, sn1
    and so on.

    Vertex n is node n of the index; NPUs, cabinets and supernodes follow. Attributes: `kind`; `name`, except for NPUs;
    and for nodes `up`, `cpus`, `mem_gib`, `allocated` and `broken`, the dies that take no new allocation.
    """
    names = supernodes or [f"sn{number}" for number in range(shape.supernodes)]
    npus = shape.all_nodes
    cabinets = npus + shape.all_nodes * shape.npus
    first = cabinets + shape.all_cabinets
    graph = ContainmentGraph(supernodes=range(first, first + shape.supernodes))
    for number, name in enumerate(names):
        graph.add_node(first + number, kind="supernode", name=name)
    for number in range(shape.all_cabinets):
        name = f"{names[number // shape.cabinets]}-c{number % shape.cabinets:02d}"
        graph.add_node(cabinets + number, kind="cabinet", name=name)
    whole = {"kind": "node", "up": True, "broken": 0, "cpus": shape.cpus, "mem_gib": shape.mem_gib}
    for number in range(shape.all_nodes):
        place = f"{graph.nodes[cabinets + number // shape.nodes]['name']}-n{number % shape.nodes}"
        graph.add_node(number, **whole, name=place, allocated={})
    graph.add_nodes_from(range(npus, cabinets), kind="npu")
    graph.add_edges_from((first + number // shape.cabinets, cabinets + number) for number in range(shape.all_cabinets))
    graph.add_edges_from((cabinets + number // shape.nodes, number) for number in range(shape.all_nodes))
    graph.add_edges_from((n, npus + n * shape.npus + k) for n, k in product(range(shape.all_nodes), range(shape.npus)))
    return graph


# ---- from the index's side into the graph


def annotate(graph: nx.Graph, ledger: LedgerState) -> None:
    """Replace the graph's allocations and node states by those of the ledger. Raises DoubleAllocation."""
    abouts = [graph.nodes[node] for node in nodes_of(graph)]
    for about, up in zip(abouts, ledger.index.up, strict=True):
        about.update(up=up, allocated={}, broken=0)
    for node, dies in ledger.index.faulty_dies.items():
        abouts[node]["broken"] = dies
    for name, allocation in ledger.allocations.items():
        _hold(abouts, ledger.shape, name, allocation.place)


def hold(graph: nx.Graph, name: str, place: Placement) -> None:
    """Add an allocation. Raises DoubleAllocation, and then leaves the graph unchanged."""
    _hold([graph.nodes[node] for node in nodes_of(graph)], shape_of(graph), name, place)


def _hold(abouts: list[dict[str, Any]], shape: ClusterShape, name: str, place: Placement) -> None:
    shares = shares_of(place, shape)
    for number, share in shares.items():
        used = used_of(abouts[number]["allocated"])
        over = used.cpus + share.cpus > shape.cpus or used.mem_gib + share.mem_gib > shape.mem_gib
        if used.dies & share.dies or over:
            raise DoubleAllocation(f"{name} takes of {abouts[number]['name']} what is held already")
    for number, share in shares.items():
        abouts[number]["allocated"][name] = share


def remove(graph: nx.Graph, name: str) -> None:
    """Remove an allocation."""
    for node in nodes_of(graph):
        graph.nodes[node]["allocated"].pop(name, None)


def shares_of(place: Placement, shape: ClusterShape) -> dict[int, Share]:
    """The share that a placement takes of each node, by node number."""
    found: dict[int, Share] = {}
    for masks, spare in ((place.whole, False), (place.spares, True)):
        for cabinet, mask in masks:
            for offset in range(shape.nodes):
                if mask >> offset & 1:
                    found[cabinet * shape.nodes + offset] = Share(shape.dies, spare=spare)
    for node, dies in place.parts:
        found[node] = Share(dies)
    for node, cpus in place.cpus:
        found[node] = found.get(node, Share())._replace(cpus=cpus)
    for node, mem in place.mem:
        found[node] = found.get(node, Share())._replace(mem_gib=mem)
    return found


# ---- from the graph into the index


def shape_of(graph: nx.Graph) -> ClusterShape:
    """The shape of the machine, read from one element of each kind. `index_of` checks that the others are alike."""
    supernodes = graph.graph["supernodes"]
    cabinets = _inside(graph, supernodes[0], "cabinet")
    nodes = _inside(graph, cabinets[0], "node")
    node = graph.nodes[nodes[0]]
    npus = graph.degree(nodes[0]) - 1
    return ClusterShape(len(supernodes), len(cabinets), len(nodes), npus, node["cpus"], node["mem_gib"])


def index_of(graph: nx.Graph) -> FreeCapacityIndex:
    """The index of free capacity, built from the graph alone. Raises ValueError if domains are not alike."""
    shape = shape_of(graph)
    index = FreeCapacityIndex(shape)
    for cabinet, nodes in enumerate(_cabinets(graph)):
        if len(nodes) != shape.nodes:
            raise ValueError(f"cabinet {cabinet} has {len(nodes)} nodes beside {shape.nodes} of another")
        _read_cabinet(graph, index, cabinet, nodes)
    if cabinet + 1 != shape.all_cabinets:
        raise ValueError(f"{cabinet + 1} cabinets are no {shape.supernodes} times {shape.cabinets}")
    return index


def _read_cabinet(graph: nx.Graph, index: FreeCapacityIndex, cabinet: int, nodes: list[Any]) -> None:
    full, taken = index.shape.dies, 0
    down: list[int] = []
    broken: list[tuple[int, int]] = []
    first, attributes = cabinet * len(nodes), graph.nodes
    for offset, node in enumerate(nodes):
        about = attributes[node]
        if not about["up"]:
            down.append(first + offset)
        if about["broken"]:
            broken.append((first + offset, about["broken"]))
        if not about["allocated"]:
            continue
        used = used_of(about["allocated"])
        index.cpus[first + offset] -= used.cpus
        index.mem[first + offset] -= used.mem_gib
        if used.dies == full:
            taken |= 1 << offset
        elif used.dies:
            index.allocate_dies(first + offset, used.dies)
    if taken:
        index.allocate_nodes(cabinet, taken)
    for number in down:
        index.set_up(number, False)
    for number, dies in broken:
        index.set_faulty_dies(number, dies)


def used_of(current: dict[str, Share]) -> Share:
    """The total share of a node's allocations."""
    dies = cpus = mem = 0
    for share in current.values():
        dies |= share.dies
        cpus += share.cpus
        mem += share.mem_gib
    return Share(dies, cpus, mem)


def nodes_of(graph: nx.Graph) -> list[Any]:
    """The vertices of the nodes, in the order of their numbers in the index."""
    return [node for nodes in _cabinets(graph) for node in nodes]


def holders_of(graph: nx.Graph, npu: Any) -> list[str]:
    """The allocations that hold an NPU's dies: two if each has one die."""
    node = next(iter(graph.adj[npu]))
    place = list(_inside(graph, node, "npu")).index(npu)
    return sorted(name for name, share in graph.nodes[node]["allocated"].items() if share.dies >> 2 * place & 3)


def _cabinets(graph: nx.Graph) -> Iterator[list[Any]]:
    """Yield the nodes of each cabinet, in the machine's order."""
    for supernode in graph.graph["supernodes"]:
        for cabinet in _inside(graph, supernode, "cabinet"):
            yield _inside(graph, cabinet, "node")


def _inside(graph: nx.Graph, vertex: Any, kind: str) -> list[Any]:
    attributes = graph.nodes
    return [other for other in graph.adj[vertex] if attributes[other]["kind"] == kind]
