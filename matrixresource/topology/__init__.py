"""Where things are: the numbers of a CloudMatrix384, its three planes as graphs, and queries on them."""

from matrixresource.topology.layout import Layout, Link, Vertex
from matrixresource.topology.spec import Figure, InvalidSpec, SupernodeSpec
from matrixresource.topology.supernode import Supernode, UnknownPart

__all__ = [
    "Figure",
    "InvalidSpec",
    "Layout",
    "Link",
    "Supernode",
    "SupernodeSpec",
    "UnknownPart",
    "Vertex",
]
