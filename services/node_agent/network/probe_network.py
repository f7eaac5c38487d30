"""EmulatedWires: the results of probes, by the true condition of every part on their path.

It uses the real state of all nodes' hardware, including what ports carry but do not report; the control plane sees only
the agents' conclusions. A probe gets the share of its rate that the weakest port on its path carries, and none if the
node that should answer has no power. Nodes outside this process count as healthy.

The latency of a probe is the plane's measured one (`matrixlink/fabric/condition/calibration.yaml`) plus, over degraded
ports, the longer time that its 512 bytes take. Queueing behind other traffic is not modelled.
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
from matrixlink.probing.plan import LINK_COLUMNS, ProbePlan
from matrixlink.probing.tomography import PASS_SHARE
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec

PROBE_BYTES = 512
"""The size at which the paper's latencies were measured."""


class EmulatedProbeTransport:
    """The wires between nodes."""

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
        """The results of one round of a node's probes. If no node is impaired, paths are not examined one by one."""
        known = map(self._nodes.get, plan.nodes)
        impaired = {str(found.name): found for found in known if found is not None and not found.ports_healthy}
        if not impaired:
            return ProbeRoundResult(plan.sent(node, number), (), self._latency_us)
        crossed = plan.parts(number)[plan.index[node], :, :LINK_COLUMNS]
        shares = _carried_shares(plan, impaired)[crossed].min(axis=1)
        failed = [(int(probe), float(shares[probe])) for probe in np.flatnonzero(shares < PASS_SHARE)]
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


def _carried_shares(plan: ProbePlan, impaired: Mapping[str, EmulatedNode]) -> NDArray[np.float64]:
    """The share of its rate that each link carries, by part number; a final 1 stands for absent links."""
    found = np.ones(len(plan.names) + 1)
    for name, node in impaired.items():
        ports = {*node.ports, *node.unreported_losses} if node.powered else plan.port_number
        for port in ports:
            if port in plan.port_number:
                found[plan.number[f"{name}.{port}"]] = node.port_share(port)
    return found
