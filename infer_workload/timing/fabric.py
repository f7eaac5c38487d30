"""What a FabricView lets a workload do, reduced to a few rates.

MatrixLink's view lists each node's ports per sub-plane. A collective that every die takes part in is as fast as its
slowest member, so all that a step's time needs is, for each node, the rate one of its dies reaches when all of them
send at once. Traffic is striped evenly over the sub-planes in use; a sub-plane that is so weak that it would hold the
others back is left out (no source says how UB stripes: this is our assumption).

Rates are GB/s in one direction, latencies seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infer_workload.timing.calibration import load_calibration
from matrixcommon.model.hardware_names import NPUS_PER_NODE

DIES_PER_NODE = 2 * NPUS_PER_NODE
"""Two dies a package."""
UB, RDMA, VPC = "ub", "rdma", "vpc"


class Ports(Protocol):
    """One node's ports on one plane, an entry per sub-plane (GB/s)."""

    @property
    def uplink_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_gbps(self) -> Sequence[float]: ...


@dataclass(frozen=True)
class PortRates:
    """Ports as plain numbers, for a fabric that no link service described."""

    uplink_gbps: list[float]
    endpoint_gbps: list[float]


@dataclass
class Fabric:
    """The reduced view of one generation. A node missing from a plane has rate zero there."""

    generation: int
    ports: Mapping[str, Mapping[str, Ports]]
    latency_us: Mapping[str, float]
    reduced: dict[Hashable, float] = field(default_factory=dict, repr=False)
    """Rates that others worked out from this view, kept here because they hold as long as it does."""
    _rates: dict[tuple[str, str, int, float], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, view: Any) -> Fabric:
        """From a MatrixLink FabricView."""
        planes = {str(plane): current for plane, current in view.planes.items()}
        return cls(
            generation=view.generation,
            ports={plane: current.nodes for plane, current in planes.items()},
            latency_us={plane: current.latency_us for plane, current in planes.items()},
        )

    @classmethod
    def healthy(cls, nodes: Iterable[str], generation: int = 1) -> Fabric:
        """A whole fabric for those nodes, nobody else on it: the machine's port rates, for experiments without a link
        service."""
        current, machine = list(nodes), load_calibration()
        sub_planes = int(machine.ub_sub_planes)
        kinds = {
            UB: PortRates([machine.ub_uplink_gbps] * sub_planes, [machine.ub_port_gbps] * sub_planes),
            RDMA: PortRates([machine.rdma_node_gbps], [machine.rdma_port_gbps]),
            VPC: PortRates([machine.vpc_node_gbps], [machine.vpc_node_gbps]),
        }
        latency = {UB: machine.ub_latency_us, RDMA: machine.rdma_latency_us, VPC: machine.vpc_latency_us}
        return cls(generation, {plane: dict.fromkeys(current, kind) for plane, kind in kinds.items()}, latency)

    def only(self, nodes: Iterable[str]) -> Fabric:
        """The same view as far as it speaks of those nodes."""
        kept = set(nodes)
        ports = {
            plane: {node: current for node, current in by_node.items() if node in kept}
            for plane, by_node in self.ports.items()
        }
        return Fabric(self.generation, ports, self.latency_us)

    @property
    def everybody(self) -> set[str]:
        """Every node that has a port."""
        return {node for by_node in self.ports.values() for node in by_node}

    def same_as(self, other: Fabric) -> bool:
        """Whether both are views of one generation, of the same nodes."""
        return (self.generation, self.everybody) == (other.generation, other.everybody)

    def leaving_out(self, nodes: Iterable[str]) -> Fabric:
        """The same view as far as it speaks of others."""
        unused = self.everybody.intersection(nodes)
        return self.only(self.everybody - unused) if unused else self

    def without(self, nodes: Iterable[str]) -> Fabric:
        """The view of the next generation, those nodes gone."""
        fabric = self.only(self.everybody.difference(nodes))
        fabric.generation = self.generation + 1
        return fabric

    @property
    def nodes(self) -> list[str]:
        """Nodes that can take part in serving: those that reach the UB and the RDMA plane."""
        ub, rdma = self.ports.get(UB, {}), self.ports.get(RDMA, {})
        return sorted(node for node in ub if node in rdma and self.die_gbps(UB, node) > 0 < self.die_gbps(RDMA, node))

    def die_gbps(self, plane: str, node: str, senders: int = DIES_PER_NODE, remote: float = 1.0) -> float:
        """What each of `senders` endpoints of a node reaches when all send and the share `remote` leaves the node."""
        key = (plane, node, senders, remote)
        if key not in self._rates:
            ports = self.ports.get(plane, {}).get(node)
            self._rates[key] = 0.0 if ports is None else striped(_lanes(ports, senders, remote))
        return self._rates[key]

    def slowest_die_gbps(
        self, plane: str, nodes: Iterable[str], senders: int = DIES_PER_NODE, remote: float = 1.0
    ) -> float:
        """The rate of the slowest member of a collective over those nodes."""
        return min((self.die_gbps(plane, node, senders, remote) for node in nodes), default=0.0)

    def node_gbps(self, plane: str, node: str) -> float:
        """What a whole node can take in or send out."""
        key = (plane, node, 0, 0.0)
        if key not in self._rates:
            ports = self.ports.get(plane, {}).get(node)
            self._rates[key] = 0.0 if ports is None else striped(ports.uplink_gbps)
        return self._rates[key]

    def latency_s(self, plane: str) -> float:
        return self.latency_us.get(plane, 0.0) * 1e-6


def _lanes(ports: Ports, senders: int, remote: float) -> list[float]:
    """Per sub-plane, what one sender may push: its own port, or its part of the node's uplink."""
    if remote <= 0:
        return list(ports.endpoint_gbps)
    return [
        min(endpoint, uplink / (senders * remote))
        for endpoint, uplink in zip(ports.endpoint_gbps, ports.uplink_gbps, strict=True)
    ]


def striped(lanes: Sequence[float]) -> float:
    """The best rate of even striping: the k strongest lanes, each as fast as the weakest of them."""
    ranked = sorted(lanes, reverse=True)
    return max((rate * (at + 1) for at, rate in enumerate(ranked)), default=0.0)
