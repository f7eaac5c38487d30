"""A plane of one supernode as a matrix of nodes by outgoing ports; each cell is a cable and its condition.

On the UB plane that is 48 nodes by 112 L2 chips, all 5,376 links in a few kilobytes: a lost chip is a column, a faulty
node a row, a sub-plane one of seven blocks.
"""

from __future__ import annotations

import numpy as np

from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.planes import Plane
from matrixlink.contract.telemetry import LinkMatrixView
from matrixlink.fabric.condition.fabric import DEGRADED, DOWN, UP, Fabric, health
from matrixlink.telemetry.rates import RECEIVED, SENT, Floats, PortRates
from matrixresource.topology import Supernode

DRAINED = "o"
STATE_LETTERS = {UP: "u", DEGRADED: "d", DOWN: "x"}


def link_matrix(fabric: Fabric, rates: PortRates, plane: str, supernode: str) -> LinkMatrixView:
    """Raises NotFound, InvalidField."""
    if plane not in set(Plane):
        raise NotFound(f"there is no plane {plane[:40]!r}; there are ub, rdma and vpc", field="name")
    built = fabric.supernodes.get(supernode)
    if built is None:
        raise InvalidField(
            f"there is no supernode {supernode[:40]!r}; there are {', '.join(fabric.supernodes)}", field="supernode"
        )
    places = [at for at, port in enumerate(rates.ports) if fabric.ports.plane_of[port] == plane]
    ports, nodes = [rates.ports[at] for at in places], built.nodes()
    switches = [_far_end(built, nodes[0], port) for port in ports]
    vertex = {switch.name: switch for switch in built.switches()}
    known, rates_built = rates.nodes(), np.array([fabric.built[port] for port in ports])
    return LinkMatrixView(
        plane=Plane(plane),
        supernode=supernode,
        nodes=nodes,
        cabinets=[built.cabinet_of(node) for node in nodes],
        ports=ports,
        sub_planes=[_sub_plane(built, nodes[0], port) for port in ports],
        switches=switches,
        switch_cabinets=[vertex[name].cabinet or "" if name in vertex else "" for name in switches],
        states=[_state_letters(fabric, node, ports) for node in nodes],
        utilisation=[
            _utilisation(fabric, node, ports, rates_built, known[node][:, places]) if node in known else []
            for node in nodes
        ],
    )


def _far_end(supernode: Supernode, node: str, port: str) -> str:
    name = f"{node}.{port}"
    return supernode.link(name).ends[1] if supernode.has_link(name) else ""


def _sub_plane(supernode: Supernode, node: str, port: str) -> int:
    name = f"{node}.{port}"
    return (supernode.link(name).sub_plane or 0) if supernode.has_link(name) else 0


def _state_letters(fabric: Fabric, node: str, ports: list[str]) -> str:
    below, drained = fabric.degraded_ports(node), fabric.drained(node)
    if not below and not drained:
        return STATE_LETTERS[UP] * len(ports)
    return "".join(
        DRAINED if port in drained else STATE_LETTERS[health(below.get(port, fabric.built[port]), fabric.built[port])]
        for port in ports
    )


def _utilisation(fabric: Fabric, node: str, ports: list[str], built: Floats, gbps: Floats) -> list[int]:
    """For each port, the percentage of its present capacity used by its busier direction; any traffic counts as at
    least 1."""
    below = fabric.degraded_ports(node)
    rate = np.array([below.get(port, full) for port, full in zip(ports, built, strict=True)]) if below else built
    busiest = np.maximum(gbps[SENT], gbps[RECEIVED])
    share = np.divide(busiest, rate, out=np.zeros_like(rate), where=rate > 0)
    percent: list[int] = np.clip(np.ceil(np.round(share * 100, 3)), 0, 100).astype(int).tolist()
    return percent
