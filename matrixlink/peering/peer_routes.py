"""Routes from the members of a slice to those of its peers, worked out again where something that they depend on is
other than it was: who the members are, the ports on their way that are not whole, and how the supernodes are wired.

A slice that changes has its peers programmed anew, each with all of its own peerings. What is kept here makes that cost
in proportion to the peerings of the slice that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matrixcommon.model.planes import Plane
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.routing.routing import choose_routes
from matrixlink.slices.programs import routes_body

Ways = dict[str, dict[str, Any]]
"""By member: the routes to its peers, and who these are, as its program has them."""


def peer_routes(fabric: Fabric, plane: Plane, members: Sequence[str], peers: Sequence[str]) -> Ways:
    """What each member is to hold to reach the peers now."""
    routes = choose_routes(fabric, plane, dict.fromkeys([*members, *peers]))
    ends = {*fabric.ports.npus, *fabric.ports.dies}
    kept = ends.union(peers, (f"{peer}-{end}" for peer in peers for end in ends))
    ways: Ways = {}
    for node in members:
        body = routes_body(routes.nodes[node])
        body["detours"] = {key: way for key, way in body["detours"].items() if key in kept}
        ways[node] = body | {"peers": [peer for peer in peers if peer != node]}
    return ways


class PeerRoutes:
    """Those that were worked out last, by slice and partner."""

    def __init__(self, promises: AdmissionState) -> None:
        self._promises = promises
        self._kept: dict[str, dict[str, tuple[Any, Ways]]] = {}

    def between(self, slice: str, partner: str, plane: Plane, members: Sequence[str], peers: Sequence[str]) -> Ways:
        """From one slice's members to another's. Nobody changes what is answered."""
        fabric = self._promises.fabric
        impaired = self._promises.impaired_ports(plane, dict.fromkeys([*members, *peers]))
        asked = plane, list(members), list(peers), fabric.wirings, impaired
        kept = self._kept.setdefault(slice, {})
        if (found := kept.get(partner)) is None or found[0] != asked:
            found = kept[partner] = asked, peer_routes(fabric, plane, members, peers)
        return found[1]

    def keep(self, slice: str, partners: set[str]) -> None:
        """Forget the routes of a slice to all but these."""
        kept = {partner: ways for partner, ways in self._kept.pop(slice, {}).items() if partner in partners}
        if kept:
            self._kept[slice] = kept
