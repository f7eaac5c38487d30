"""EmulatedWires: what comes back of a probe, by the true condition of every part on its way.

The hardware of all nodes is looked at, what their ports say and what they truly carry alike; the control plane sees
only what agents make of the answers. A probe gets the share of its rate that the weakest port on its way carries, and
none when the node that should answer has no power. Nodes that this process does not play are whole.

A probe's latency is the plane's measured one (`matrixlink/fabric/calibration.yaml`) and, over ports that carry less,
the longer time that its 512 bytes take on them. Waiting behind other traffic is not modelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from matrixlink.fabric.planes import plane_models
from matrixlink.ports import Sweep
from matrixlink.probing.localise import WHOLE
from matrixlink.probing.plan import Probe, ProbePlan
from matrixresource.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.names import NodeName
from matrixresource.vocabulary.planes import Plane

PROBE_BYTES = 512
"""The size at which the paper's latencies were measured."""


class EmulatedWires:
    """Joins nodes."""

    def __init__(self, nodes: Mapping[NodeName, EmulatedNode], spec: SupernodeSpec) -> None:
        self._nodes = nodes
        models = plane_models(spec)
        self._latency_us = {plane: models[plane].latency_us for plane in Plane}
        self._port_gbps = {
            Plane.UB: spec.ub.uplink_gbps,
            Plane.RDMA: spec.die.rdma_gbps,
            Plane.VPC: spec.node.vpc_gbps,
        }

    def sweep(self, plan: ProbePlan, node: str, number: int) -> Sweep:
        """Where all is well nothing is looked at one by one."""
        hurt = {str(name): each for name, each in self._nodes.items() if not each.sound}
        if not hurt:
            return Sweep(plan.per_round, (), self._latency_us)
        shares = [(probe, self._share(probe, hurt)) for probe in plan.round_of(node, number)]
        slower: dict[Plane, list[float]] = defaultdict(list)
        for probe, share in shares:
            if share > 0:
                slower[probe.plane].append(PROBE_BYTES / self._port_gbps[probe.plane] * (1 / share - 1) / 1000)
        latency_us = {
            plane: round(self._latency_us[plane] + sum(each) / len(each), 3) for plane, each in slower.items()
        }
        return Sweep(len(shares), [(probe, share) for probe, share in shares if share < WHOLE], latency_us)

    @staticmethod
    def _share(probe: Probe, hurt: Mapping[str, EmulatedNode]) -> float:
        share = 1.0
        if probe.source in hurt or probe.target in hurt:
            for link in probe.links:
                owner, _, port = link.partition(".")
                if owner in hurt:
                    share = min(share, hurt[owner].carries(port))
        return share
