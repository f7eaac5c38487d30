"""The shape in which free capacity is counted, and the number of every node in it, compiled from the supernodes'
graphs.

A number is a position: supernodes in their order, then cabinets and nodes as in the graph. Positions of nodes that are
not drawn stay empty, so that a drawing with fewer nodes has the shape of its spec.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.store.topology_versions import supernodes
from matrixresource.topology.regular import regular_topology
from matrixresource.topology.supernode import Supernode


def cluster_shape(built: Mapping[str, Supernode]) -> ClusterShape:
    """The largest of each dimension: supernodes of one machine are alike except for what is not drawn."""
    specs = {each.spec.fingerprint: each.spec for each in built.values()}.values()
    slots = [at for spec in specs for at in regular_topology(spec).node_slots.values()]
    return ClusterShape(
        max(1, len(built)),
        max((cabinet + 1 for cabinet, _ in slots), default=1),
        max((node + 1 for _, node in slots), default=1),
        *max(((spec.node.npus, spec.node.cpus, spec.node.dram_gib) for spec in specs), default=(8, 4, 0)),
    )


def npus_of_node(session: Session) -> int:
    """NPUs of a whole node, as requests count them."""
    return cluster_shape(supernodes(session)).npus


def node_numbers(built: Mapping[str, Supernode], shape: ClusterShape) -> dict[str, int]:
    """The number of every drawn node in the shape."""
    found = {}
    for order, (name, supernode) in enumerate(built.items()):
        first = order * shape.nodes_per_supernode
        for node, (cabinet, place) in supernode.topology.nodes.items():
            found[f"{name}-{node}"] = first + cabinet * shape.nodes + place
    return found
