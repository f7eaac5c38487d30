"""EmulatedWires: what comes back of a probe, by the true condition of every part on its way.

The hardware of all nodes is looked at, what their ports say and what they truly carry alike; the control plane sees
only what agents make of the answers. A probe gets the share of its rate that the weakest port on its way carries, and
none when the node that should answer has no power. Nodes that this process does not play are whole.

A probe's latency is the plane's measured one (`matrixlink/fabric/calibration.yaml`) and, over ports that carry less,
the longer time that its 512 bytes take on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matrixlink.fabric.planes import plane_models
from matrixlink.probing.plan import Probe
from matrixresource.hardware import EmulatedNode
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.planes import Plane

PROBE_BYTES = 512
"""The size at which the paper's latencies were measured."""


class EmulatedWires:
    """Joins nodes. `waiting_us` is what load on the way adds to a probe's latency."""

    def __init__(
        self,
        nodes: Mapping[str, EmulatedNode],
        spec: SupernodeSpec,
        waiting_us: Callable[[Probe], float] = lambda probe: 0.0,
    ) -> None:
        self._nodes = nodes
        self.waiting_us = waiting_us
        models = plane_models(spec)
        self._latency_us = {plane: models[plane].latency_us for plane in Plane}
        self._port_gbps = {
            Plane.UB: spec.ub.uplink_gbps,
            Plane.RDMA: spec.die.rdma_gbps,
            Plane.VPC: spec.node.vpc_gbps,
        }

    def send(self, node: str, probes: Sequence[Probe]) -> list[tuple[float, float]]:
        hurt = {name: each for name, each in self._nodes.items() if not each.sound}
        return [self._answer(probe, hurt) for probe in probes]

    def _answer(self, probe: Probe, hurt: Mapping[str, EmulatedNode]) -> tuple[float, float]:
        share = 1.0
        if probe.source in hurt or probe.target in hurt:
            for link in probe.links:
                owner, _, port = link.partition(".")
                if owner in hurt:
                    share = min(share, hurt[owner].carries(port))
        if share <= 0:
            return 0.0, 0.0
        slower_us = PROBE_BYTES / self._port_gbps[probe.plane] * (1 / share - 1) / 1000
        return share, self._latency_us[probe.plane] + slower_us + self.waiting_us(probe)
