"""slice_view: what a slice may use of each member's uplinks right now.

The uplinks of a node on one sub-plane are shared among the slices that have it as a member, by the same `share` that
times the workload: each has the floor booked for it, and by weight its part of what nobody was promised, up to its
ceiling.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from matrixlink.fabric.flow import Flow
from matrixlink.fabric.link import Fabric
from matrixlink.fabric.planes import PlaneModel
from matrixlink.fabric.reservations import Ledger
from matrixlink.fabric.sharing import share
from matrixlink.fabric.view import NodePorts, PlaneView
from matrixlink.routing import slowest_endpoint, uplinks
from matrixlink.store import SliceRow
from matrixresource.vocabulary.planes import Plane

Terms = tuple[float, float, float]
"""Weight, floor and ceiling of one slice on one node's sub-plane, GB/s."""


def slice_view(
    row: SliceRow, rows: Iterable[SliceRow], fabric: Fabric, ledger: Ledger, model: PlaneModel
) -> dict[str, Any]:
    """The PlaneView of `row` among all slices of its plane, in its wire form."""
    others = [other for other in rows if other.name != row.name]
    nodes = {node: _ports(node, row, others, fabric, ledger) for node in sorted(row.members)}
    return PlaneView(nodes=nodes, latency_us=model.latency_us).wire()


def _ports(node: str, row: SliceRow, others: list[SliceRow], fabric: Fabric, ledger: Ledger) -> NodePorts:
    plane = Plane(row.plane)
    here = [row, *(other for other in others if node in other.members)]
    links = uplinks(fabric, plane, node)
    capacity = [sum(fabric.capacity(link) for link in sub_plane) for sub_plane in links]
    whole = sum(capacity)
    rates = []
    for sub_plane, has in zip(links, capacity, strict=True):
        terms = tuple(_terms(each, sub_plane, has, whole, fabric, ledger) for each in here)
        rates.append(round(_first_share(has, terms), 6))
    return NodePorts(uplink_gbps=rates, endpoint_gbps=slowest_endpoint(fabric, plane, node))


def _terms(row: SliceRow, links: list[str], has: float, whole: float, fabric: Fabric, ledger: Ledger) -> Terms:
    held = ledger.held(row.name)
    floor = min(sum(float(held.get(link, 0)) for link in links), has)
    if row.ceiling_gbps is None or whole <= 0:
        return row.weight, floor, math.inf
    return row.weight, floor, max(floor, row.ceiling_gbps * fabric.spec.node.npus * has / whole)


@functools.lru_cache(maxsize=4096)
def _first_share(capacity: float, terms: tuple[Terms, ...]) -> float:
    """The first slice's rate on one sub-plane of one node. Floors that a loss has just undercut, or rounding tipped
    over, are scaled to what there is: the promise itself is mended by the next reroute."""
    booked = sum(floor for _, floor, _ in terms)
    part = 1.0 if booked <= capacity else capacity / booked * (1 - 1e-12)
    flows = [Flow((0,), weight, floor * part, ceiling) for weight, floor, ceiling in terms]
    return float(share(flows, {0: capacity})[0])
