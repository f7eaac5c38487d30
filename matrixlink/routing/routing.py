"""choose_routes and choose_needs: the sub-planes, L2 chips and ports that a slice's traffic uses, and what a floor
takes of each link.

A slice has no fixed flows: any member may send to any other, up to its floor in total (the hose model). A route is
therefore a set of weights: a sender spreads its traffic to a peer over all paths that both ends have left, in
proportion to what those paths carry. In the UB plane these are all healthy sub-planes and all L2 chips whose cables to
both nodes work; in the RDMA plane both die ports of an NPU, each in its own subnet; in the VPC plane the one card.

A floor is booked on every link at the most it can be asked to carry: the sender's whole floor times the largest weight
that any peer makes it put there. If the sums of such bookings are within capacity, every floor holds whatever the
traffic. A protected floor is booked at the most it can be asked to carry after any one failure as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import Protection
from matrixlink.routing.rdma_routing import choose_rdma, rdma_needs
from matrixlink.routing.routes import BandwidthNeeds, NodeRoutes, Routes, Stripe
from matrixlink.routing.ub_routing import choose_ub, ub_needs

__all__ = ["BandwidthNeeds", "NodeRoutes", "Routes", "Stripe", "choose_needs", "choose_routes"]


def choose_routes(fabric: Fabric, plane: Plane, members: Iterable[str]) -> Routes:
    """Routes among `members` over what may be used now."""
    return _CHOOSERS[plane](fabric, list(members))


def choose_needs(
    fabric: Fabric, plane: Plane, members: Iterable[str], protection: Protection = Protection.NONE
) -> BandwidthNeeds:
    """What one GB/s of floor per NPU takes of each link under those routes, and what it must have set aside to survive
    any one failure of that level."""
    return _NEEDS[plane](fabric, list(members), protection)


# ---- VPC: one card per node -----------------------------------------------------------------------------------------


def _choose_vpc(fabric: Fabric, members: list[str]) -> Routes:
    routes = {node: NodeRoutes((Stripe(0, 1.0),) if fabric.share(node, "vpc") else ()) for node in members}
    return Routes(Plane.VPC, routes, _vpc_cut(fabric, members))


def _vpc_needs(fabric: Fabric, members: list[str], protection: Protection) -> BandwidthNeeds:
    need = dict.fromkeys(members, np.array([float(fabric.spec.node.npus)]))
    cut = _vpc_cut(fabric, members)
    return BandwidthNeeds(need, need, cut, cut)


def _vpc_cut(fabric: Fabric, members: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple((node, "*") for node in members if fabric.share(node, "vpc") <= 0)


_CHOOSERS: dict[Plane, Callable[[Fabric, list[str]], Routes]] = {
    Plane.UB: choose_ub,
    Plane.RDMA: choose_rdma,
    Plane.VPC: _choose_vpc,
}
_NEEDS: dict[Plane, Callable[[Fabric, list[str], Protection], BandwidthNeeds]] = {
    Plane.UB: ub_needs,
    Plane.RDMA: rdma_needs,
    Plane.VPC: _vpc_needs,
}


def slowest_endpoint(fabric: Fabric, plane: Plane, node: str) -> list[float]:
    """What the worst endpoint has on each sub-plane, GB/s. On RDMA the two dies of an NPU share what its ports have: a
    die whose own port is down uses the other's."""
    spec, usable = fabric.spec, fabric.usable_rates(plane, node)
    if plane == Plane.VPC:
        return [float(usable[0])]
    if plane == Plane.RDMA:
        return [float(usable.reshape(-1, spec.npu.dies).mean(axis=1).min())]
    if not fabric.unavailable_ports(node):
        return [spec.die.ub_link_gbps] * spec.ub.sub_planes
    dies: list[list[float]] = usable[-spec.node.dies * spec.ub.sub_planes :].reshape(-1, spec.ub.sub_planes).tolist()
    return min(dies, key=sum)
