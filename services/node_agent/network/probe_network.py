"""EmulatedWires: what comes back of a probe, by the true condition of every part on its way.

The hardware of all nodes is looked at, what their ports say and what they truly carry alike; the control plane sees
only what agents make of the answers. A probe gets the share of its rate that the weakest port on its way carries, and
none when the node that should answer has no power. Nodes that this process does not play are whole.

A probe's latency is the plane's measured one (`matrixlink/fabric/condition/calibration.yaml`) and, over ports that
carry less, the longer time that its 512 bytes take on them. Waiting behind other traffic is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.planes import plane_models
from matrixlink.ports import ProbeRoundResult
from matrixlink.probing.plan import LINKS_CROSSED, ProbePlan
from matrixlink.probing.tomography import WHOLE
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec

PROBE_BYTES = 512
"""The size at which the paper's latencies were measured."""


class EmulatedWires:
    """Joins nodes."""

    def __init__(self, nodes: Mapping[NodeName, EmulatedNode], spec: SupernodeSpec) -> None:
        self._nodes = cast(Mapping[str, EmulatedNode], nodes)  # a name is looked up by its text
        models = plane_models(spec)
        self._latency_us = {plane: models[plane].latency_us for plane in Plane}
        self._port_gbps = {
            Plane.UB: spec.ub.uplink_gbps,
            Plane.RDMA: spec.die.rdma_gbps,
            Plane.VPC: spec.node.vpc_gbps,
        }

    def sweep(self, plan: ProbePlan, node: str, number: int) -> ProbeRoundResult:
        """Where all is well nothing is looked at one by one."""
        known = map(self._nodes.get, plan.nodes)
        impaired = {str(found.name): found for found in known if found is not None and not found.sound}
        if not impaired:
            return ProbeRoundResult(plan.sent(node, number), (), self._latency_us)
        crossed = plan.parts(number)[plan.index[node], :, :LINKS_CROSSED]
        shares = _carried(plan, impaired)[crossed].min(axis=1)
        failed = [(int(probe), float(shares[probe])) for probe in np.flatnonzero(shares < WHOLE)]
        return ProbeRoundResult(plan.sent(node, number), failed, self._latencies(plan, shares))

    def _latencies(self, plan: ProbePlan, shares: NDArray[np.float64]) -> dict[Plane, float]:
        found = {}
        for plane in Plane:
            came = [s for s, of in zip(shares.tolist(), plan.plane_of_path, strict=True) if of == plane and s > 0]
            if came:
                slower = sum(1 / share - 1 for share in came) / len(came)
                longer_us = PROBE_BYTES / self._port_gbps[plane] / 1000 * slower
                found[plane] = round(self._latency_us[plane] + longer_us, 3)
        return found


def _carried(plan: ProbePlan, impaired: Mapping[str, EmulatedNode]) -> NDArray[np.float64]:
    """By part number, the share of its rate that a link carries; 1 at the end for links that are not there."""
    found = np.ones(len(plan.names) + 1)
    for name, node in impaired.items():
        ports = {*node.ports, *node.silent} if node.powered else plan.port_number
        for port in ports:
            if port in plan.port_number:
                found[plan.number[f"{name}.{port}"]] = node.carries(port)
    return found
