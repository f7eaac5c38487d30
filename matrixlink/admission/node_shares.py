"""node_ports: what a slice may use of one member's uplinks right now.

The uplinks of a node in one sub-plane are shared among the slices on the node by the same `share` that times the
workload: each has its booked floor and, by weight, its part of what is promised to nobody, up to its ceiling. Reserves
for failures are idle until then and may be used by everybody.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from matrixcommon.model.planes import Plane
from matrixlink.admission.bandwidth_ledger import BandwidthLedger
from matrixlink.admission.slice_index import SliceState
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.fabric.condition.fabric_view import NodePorts
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import share
from matrixlink.routing.routes import Vector
from matrixlink.routing.routing import slowest_endpoint

ShareTerms = tuple[float, float, float]
"""Weight, floor and ceiling of one slice in one sub-plane of a node, GB/s."""


Ports = dict[str, Any]
"""A NodePorts in wire form; read-only."""


class SubPlaneSums:
    """Vectors over ports summed by sub-plane, each vector once: nodes in the same condition share theirs."""

    def __init__(self, fabric: Fabric, plane: Plane) -> None:
        self._fabric, self._plane = fabric, plane
        self._made: dict[int, tuple[Vector, list[float]]] = {}

    def of(self, ports: Vector) -> list[float]:
        made = self._made.get(id(ports))
        if made is None:  # keep the vector, so that its id is not reused
            made = self._made[id(ports)] = ports, by_sub_plane(self._fabric, self._plane, ports)
        return made[1]


def node_ports(
    node: str, here: list[SliceState], fabric: Fabric, ledger: BandwidthLedger, sums: SubPlaneSums
) -> list[Ports]:
    """The ports of each slice in `here`, which must be all slices on that node and plane."""
    plane = here[0].plane
    capacity = sums.of(fabric.usable_rates(plane, node))
    whole = sum(capacity)
    floors = [_floors(node, each, ledger, len(capacity), sums) for each in here]
    made: dict[tuple[float, ...], list[float]] = {}  # sub-planes in the same condition are computed once
    columns = []
    for at, has in enumerate(capacity):
        column = (has, *(floor[at] for floor in floors))
        if column not in made:
            shared = [
                _share_terms(each, min(floor, has), has, whole, fabric)
                for each, floor in zip(here, column[1:], strict=True)
            ]  # fmt: skip
            made[column] = [
                round(_first_share(has, (own, *shared[:first], *shared[first + 1 :])), 6)
                for first, own in enumerate(shared)
            ]
        columns.append(made[column])
    endpoint = tuple(slowest_endpoint(fabric, plane, node))
    return [_ports_document(rates, endpoint) for rates in zip(*columns, strict=True)]


@functools.lru_cache(maxsize=4096)
def _ports_document(uplink_gbps: tuple[float, ...], endpoint_gbps: tuple[float, ...]) -> Ports:
    return NodePorts(uplink_gbps=[*uplink_gbps], endpoint_gbps=[*endpoint_gbps]).wire()


def by_sub_plane(fabric: Fabric, plane: Plane, ports: Vector) -> list[float]:
    """A vector over a node's ports, summed over its uplinks by sub-plane."""
    if plane != Plane.UB:
        return [float(ports.sum())]
    ub = fabric.spec.ub
    uplinks = ports[: ub.sub_planes * ub.l2_per_sub_plane].reshape(ub.sub_planes, -1)
    sums: list[float] = uplinks.sum(axis=1).tolist()
    return sums


def _floors(node: str, terms: SliceState, ledger: BandwidthLedger, sub_planes: int, sums: SubPlaneSums) -> list[float]:
    booking = ledger.booking(terms.name)
    current = booking.floors.get(node) if booking else None
    return [0.0] * sub_planes if current is None else sums.of(current)


def _share_terms(terms: SliceState, floor: float, has: float, whole: float, fabric: Fabric) -> ShareTerms:
    if terms.ceiling_gbps is None or whole <= 0:
        return terms.weight, floor, math.inf
    return terms.weight, floor, max(floor, terms.ceiling_gbps * fabric.spec.node.npus * has / whole)


@functools.lru_cache(maxsize=4096)
def _first_share(capacity: float, terms: tuple[ShareTerms, ...]) -> float:
    """The first slice's rate in one sub-plane of one node. Floors that no longer fit, after a loss just now or through
    rounding, are scaled down: the next reroute corrects the promise itself."""
    booked = sum(floor for _, floor, _ in terms)
    part = 1.0 if booked <= capacity else capacity / booked * (1 - 1e-12)
    flows = [Flow((0,), weight, floor * part, ceiling) for weight, floor, ceiling in terms]
    return float(share(flows, {0: capacity})[0])
