"""The shape that free capacity is counted in, and every node's number in it, compiled from the supernodes' graphs.

A number is a place: supernodes in their order, cabinets and nodes as the graph has them. Places whose node is not drawn
are left empty, so that a drawing with fewer nodes is counted in the shape of its spec.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.store.topology_versions import supernodes
from matrixresource.topology.compiled import frame_of
from matrixresource.topology.supernode import Supernode


def cluster_shape(built: Mapping[str, Supernode]) -> ClusterShape:
    """The largest of what each has: supernodes of one machine are alike but for what is not drawn."""
    specs = {each.spec.fingerprint: each.spec for each in built.values()}.values()
    slots = [at for spec in specs for at in frame_of(spec).node_slots.values()]
    return ClusterShape(
        max(1, len(built)),
        max((cabinet + 1 for cabinet, _ in slots), default=1),
        max((node + 1 for _, node in slots), default=1),
        *max(((spec.node.npus, spec.node.cpus, spec.node.dram_gib) for spec in specs), default=(8, 4, 0)),
    )


def npus_of_node(session: Session) -> int:
    """How many NPUs a whole node has, as requests count."""
    return cluster_shape(supernodes(session)).npus


def node_numbers(built: Mapping[str, Supernode], shape: ClusterShape) -> dict[str, int]:
    """Every node that is drawn, with its number in the shape."""
    found = {}
    for order, (name, supernode) in enumerate(built.items()):
        first = order * shape.of_supernode
        for node, (cabinet, place) in supernode.topology.nodes.items():
            found[f"{name}-{node}"] = first + cabinet * shape.nodes + place
    return found
