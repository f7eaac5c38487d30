"""node_ports: what a slice may use of one member's uplinks right now.

The uplinks of a node on one sub-plane are shared among the slices that have it as a member, by the same `share` that
times the workload: each has the floor booked for it, and by weight its part of what nobody was promised, up to its
ceiling. What is set aside for a failure is idle until then, so everybody may use it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from matrixlink.fabric.flow import Flow
from matrixlink.fabric.link import Fabric
from matrixlink.fabric.sharing import share
from matrixlink.fabric.view import NodePorts
from matrixlink.floors import FloorBook
from matrixlink.routes import Vector
from matrixlink.routing import slowest_endpoint
from matrixlink.terms import Terms
from matrixresource.vocabulary.planes import Plane

Shared = tuple[float, float, float]
"""Weight, floor and ceiling of one slice on one node's sub-plane, GB/s."""


def node_ports(node: str, terms: Terms, here: list[Terms], fabric: Fabric, ledger: FloorBook) -> dict[str, Any]:
    """The NodePorts of `terms` on one node among all slices that are there, in its wire form."""
    capacity = by_sub_plane(fabric, terms.plane, fabric.usable(terms.plane, node))
    whole = sum(capacity)
    ordered = [terms, *(other for other in here if other.name != terms.name)]
    floors = [_floors(node, each, fabric, ledger, len(capacity)) for each in ordered]
    rates = []
    for at, has in enumerate(capacity):
        shared = tuple(
            _shared(each, min(floor[at], has), has, whole, fabric)
            for each, floor in zip(ordered, floors, strict=True)
        )  # fmt: skip
        rates.append(round(_first_share(has, shared), 6))
    return NodePorts(uplink_gbps=rates, endpoint_gbps=slowest_endpoint(fabric, terms.plane, node)).wire()


def by_sub_plane(fabric: Fabric, plane: Plane, ports: Vector) -> list[float]:
    """The sum over a node's uplinks, sub-plane by sub-plane, of a vector over its ports."""
    if plane != Plane.UB:
        return [float(ports.sum())]
    ub = fabric.spec.ub
    uplinks = ports[: ub.sub_planes * ub.l2_per_sub_plane].reshape(ub.sub_planes, -1)
    sums: list[float] = uplinks.sum(axis=1).tolist()
    return sums


def _floors(node: str, terms: Terms, fabric: Fabric, ledger: FloorBook, sub_planes: int) -> list[float]:
    booking = ledger.booking(terms.name)
    held = booking.floors.get(node) if booking else None
    return [0.0] * sub_planes if held is None else by_sub_plane(fabric, terms.plane, held)


def _shared(terms: Terms, floor: float, has: float, whole: float, fabric: Fabric) -> Shared:
    if terms.ceiling_gbps is None or whole <= 0:
        return terms.weight, floor, math.inf
    return terms.weight, floor, max(floor, terms.ceiling_gbps * fabric.spec.node.npus * has / whole)


@functools.lru_cache(maxsize=4096)
def _first_share(capacity: float, terms: tuple[Shared, ...]) -> float:
    """The first slice's rate on one sub-plane of one node. Floors that a loss has just undercut, or rounding tipped
    over, are scaled to what there is: the promise itself is mended by the next reroute."""
    booked = sum(floor for _, floor, _ in terms)
    part = 1.0 if booked <= capacity else capacity / booked * (1 - 1e-12)
    flows = [Flow((0,), weight, floor * part, ceiling) for weight, floor, ceiling in terms]
    return float(share(flows, {0: capacity})[0])
