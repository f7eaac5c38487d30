"""The real state of all nodes' ports, as input for the fabric core."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from matrixlink.fabric.condition.port_order import port_order
from matrixlink.fabric.contention.port_groups import PortGroups, PortShape
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec


def port_groups(spec: SupernodeSpec, nodes: Sequence[EmulatedNode]) -> PortGroups:
    """The ports in the order of `PortOrder.outward_ports`, each with the share of its rate that it carries."""
    order, planes = port_order(spec), range(spec.ub.sub_planes)
    share = np.array([[node.destination_share(port) for port in order.outward_ports] for node in nodes])
    dies = np.array([[[node.port_share(f"{die}-p{p}") for p in planes] for die in order.dies] for node in nodes])
    return PortGroups(PortShape.of(spec), share, dies, np.array([node.powered for node in nodes]))
