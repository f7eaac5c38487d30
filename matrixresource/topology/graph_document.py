"""Reads a supernode that somebody drew, from a file or a request: node-link JSON or GraphML.

A document is read as it stands, so that duplicate names are found, then checked (`graph_checks.py`); only a drawing
without faults becomes a graph and its compiled form. `InvalidGraph` lists everything that is wrong, one sentence per
fault. `pack` makes a document small enough for a request.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from matrixcommon.model.errors import InvalidField
from matrixresource.topology.compiled import CompiledTopology, compile_graph, compile_with_deviations
from matrixresource.topology.graph import CONTAINS
from matrixresource.topology.graph_checks import Drawing, GraphFault, find_faults
from matrixresource.topology.spec import SupernodeSpec

UNPACKED_BYTES_MAX = 32 << 20
"""The graph of a supernode is 3 MB of JSON."""
SENTENCES_SHOWN = 10


class InvalidGraph(InvalidField):
    """A drawing that cannot be used; `faults` lists each fault with its place."""

    def __init__(self, found: list[GraphFault]) -> None:
        self.faults = found
        more = f" (and {len(found) - SENTENCES_SHOWN} more)" if len(found) > SENTENCES_SHOWN else ""
        text = "; ".join(fault.sentence for fault in found[:SENTENCES_SHOWN]) + more
        blocking = [{"where": fault.where, "sentence": fault.sentence} for fault in found[:100]]
        super().__init__(text, field="graph", blocking=blocking)

    @property
    def reason(self) -> str:
        return InvalidField.__name__


def compile_document(document: Any, spec: SupernodeSpec) -> CompiledTopology:
    """The compiled form of a drawn supernode. Raises InvalidGraph."""
    return compile_drawing(read_drawing(document), spec)


def compile_drawing(drawing: Drawing, spec: SupernodeSpec) -> CompiledTopology:
    """The same for a drawing that has been read. Raises InvalidGraph."""
    if found := find_faults(drawing, spec):
        raise InvalidGraph(found)
    compiled = compile_graph(drawing_graph(drawing), spec)
    return compile_with_deviations(spec, compiled.deviations)  # shared by all that are identical


def read_drawing_file(path: Path) -> Drawing:
    """A drawing from a file in either form. Raises InvalidField."""
    if not path.is_file():
        raise InvalidField(f"there is no file {path}", field="--file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable("it is not text") from error
    return read_drawing(text)


def read_drawing(document: Any) -> Drawing:
    """A drawing from a document: node-link JSON (also as the service exports it), GraphML text, or either one
    packed."""
    if isinstance(document, str):
        text = document.strip()
        if text.startswith("<"):
            return _read_graphml(text)
        if not text.startswith("{"):
            return read_drawing(unpack(text))
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _unreadable(f"it is not valid JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise _unreadable("it is neither node-link JSON nor GraphML")
    inner = document.get("graph")
    return _read_node_link(inner if isinstance(inner, Mapping) and "nodes" in inner else document)


def drawing_graph(drawing: Drawing) -> nx.MultiGraph:
    """The graph of a drawing without faults. Cabinets and nodes that only appear as attributes become vertices."""
    graph = nx.MultiGraph(supernode=drawing.supernode)
    graph.add_nodes_from(drawing.vertices)
    for vertex, data in drawing.vertices:
        for key in ("node", "cabinet"):
            if key in data and data[key] not in graph:
                cabinet = {"cabinet": data["cabinet"]} if key == "node" else {}
                graph.add_node(data[key], kind=key, **cabinet)
        container = data.get("node") or data.get("cabinet")
        if container is not None:
            graph.add_edge(container, vertex, key=f"{container} {CONTAINS} {vertex}", kind=CONTAINS)
    for a, b, data in drawing.links:
        graph.add_edge(a, b, key=data["name"], **data)
    return graph


# ---- the two forms --------------------------------------------------------------------------------------------------


def _read_node_link(document: Mapping[str, Any]) -> Drawing:
    nodes, edges = document.get("nodes"), document.get("edges", document.get("links"))
    if not isinstance(nodes, list) or not isinstance(edges, list):
        raise _unreadable("node-link JSON needs a list of `nodes` and one of `edges`")
    try:
        vertices = [(str(each["id"]), {k: v for k, v in each.items() if k != "id"}) for each in nodes]
        joined = [
            (str(each["source"]), str(each["target"]), _without_keys(each, "source", "target", "key")) for each in edges
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise _unreadable(f"a node needs an `id`, an edge a `source` and a `target`: {error}") from error
    graph = document.get("graph")
    named = graph.get("supernode") if isinstance(graph, Mapping) else None
    return Drawing(_supernode_name(named, vertices), vertices, joined)


def _read_graphml(text: str) -> Drawing:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise _unreadable("GraphML must not have a DOCTYPE")
    try:
        root = ElementTree.fromstring(text)
        graph = nx.parse_graphml(text, force_multigraph=True)
    except (ElementTree.ParseError, nx.NetworkXError, KeyError, ValueError) as error:
        raise _unreadable(f"it is not valid GraphML: {error}") from error
    listed = [each.get("id", "") for each in root.iter() if each.tag.rpartition("}")[2] == "node"]
    vertices = [(name, dict(graph.nodes[name])) for name in listed if name in graph]
    edges = [(a, b, _without_keys(data, "id")) for a, b, data in graph.edges(data=True)]
    return Drawing(_supernode_name(graph.graph.get("supernode"), vertices), vertices, edges)


def _without_keys(data: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in (*keys, "moved")}


def _supernode_name(named: Any, vertices: list[tuple[str, dict[str, Any]]]) -> str:
    """The supernode that is drawn: as the drawing says, else that of its first vertex."""
    if isinstance(named, str) and named:
        return named
    first = re.match(r"sn\d+", vertices[0][0]) if vertices else None
    return first.group() if first else "sn0"


def _unreadable(text: str) -> InvalidField:
    return InvalidField(f"the graph cannot be read: {text}"[:400], field="graph")


# ---- small enough for a request -------------------------------------------------------------------------------------


def pack(drawing: Drawing) -> str:
    """A drawing as compressed text: a request body may have 1 MiB, a graph takes three."""
    document = {
        "graph": {"supernode": drawing.supernode},
        "nodes": [{"id": vertex, **data} for vertex, data in drawing.vertices],
        "edges": [{"source": a, "target": b, **data} for a, b, data in drawing.links],
    }
    return base64.b64encode(gzip.compress(json.dumps(document).encode(), mtime=0)).decode()


def unpack(text: str) -> str:
    """The inverse of `pack`. Raises InvalidField."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text, validate=True))) as stream:
            found = stream.read(UNPACKED_BYTES_MAX + 1)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable("it is neither node-link JSON nor GraphML, nor either of them packed") from error
    if len(found) > UNPACKED_BYTES_MAX:
        raise _unreadable("it is too large")
    try:
        inner = found.decode()
    except UnicodeDecodeError as error:
        raise _unreadable("it is not text") from error
    if not inner.lstrip().startswith(("{", "<")):
        raise _unreadable("it is neither node-link JSON nor GraphML")
    return inner
