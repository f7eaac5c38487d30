"""Routes from the members of a slice to those of its peers, recomputed when what they depend on has changed: the
members, the impaired ports on their way, and the wiring of the supernodes.

When a slice changes, its peers are programmed again, each with all of its own peerings. The cache here makes the cost
of that proportional to the peerings of the slice that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matrixcommon.model.planes import Plane
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.routing.routing import choose_routes
from matrixlink.slices.programs import routes_body

PeerRouteTable = dict[str, dict[str, Any]]
"""By member: the routes to its peers, and the peers, in the form of its program."""


def peer_routes(fabric: Fabric, plane: Plane, members: Sequence[str], peers: Sequence[str]) -> PeerRouteTable:
    """What each member must hold to reach the peers now."""
    routes = choose_routes(fabric, plane, dict.fromkeys([*members, *peers]))
    ends = {*fabric.ports.npus, *fabric.ports.dies}
    kept = ends.union(peers, (f"{peer}-{end}" for peer in peers for end in ends))
    ways: PeerRouteTable = {}
    for node in members:
        body = routes_body(routes.nodes[node])
        body["detours"] = {key: way for key, way in body["detours"].items() if key in kept}
        ways[node] = body | {"peers": [peer for peer in peers if peer != node]}
    return ways


class PeerRoutes:
    """The routes last computed, by slice and partner."""

    def __init__(self, promises: AdmissionState) -> None:
        self._promises = promises
        self._kept: dict[str, dict[str, tuple[Any, PeerRouteTable]]] = {}

    def between(
        self, slice: str, partner: str, plane: Plane, members: Sequence[str], peers: Sequence[str]
    ) -> PeerRouteTable:
        """From one slice's members to another's. The result is read-only."""
        fabric = self._promises.fabric
        impaired = self._promises.impaired_ports(plane, dict.fromkeys([*members, *peers]))
        asked = plane, list(members), list(peers), fabric.wirings, impaired
        kept = self._kept.setdefault(slice, {})
        if (found := kept.get(partner)) is None or found[0] != asked:
            found = kept[partner] = asked, peer_routes(fabric, plane, members, peers)
        return found[1]

    def keep(self, slice: str, partners: set[str]) -> None:
        """Forget the routes of a slice except to these partners."""
        kept = {partner: ways for partner, ways in self._kept.pop(slice, {}).items() if partner in partners}
        if kept:
            self._kept[slice] = kept
