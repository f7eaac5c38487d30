"""The fabric as seen by a workload, reduced to a few rates.

MatrixLink's view lists the capacity granted on each node's ports per sub-plane, regardless of other senders. The actual
throughput depends on current traffic: if it is known (`Contention`), it takes precedence. A collective of all dies is
as fast as its slowest member, so a step's time needs only that member's rate while all send at once. Traffic is striped
over the sub-planes in proportion to their free capacity, as MatrixLink routes it, so a pair reaches the sum of them.

Rates are GB/s in one direction; latencies are seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infer_workload.timing.calibration import RDMA, UB, VPC, Calibration, load_calibration
from matrixcommon.model.hardware_names import NPUS_PER_NODE

DIES_PER_NODE = 2 * NPUS_PER_NODE
"""Two dies per NPU package, as on the emulated machine."""


class Ports(Protocol):
    """One node's ports on one plane, an entry per sub-plane (GB/s)."""

    @property
    def uplink_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_gbps(self) -> Sequence[float]: ...


@dataclass(frozen=True)
class PortRates:
    """Ports as plain numbers, for a fabric built without a link service."""

    uplink_gbps: list[float]
    endpoint_gbps: list[float]


class FreeBandwidth(Protocol):
    """Free capacity of one node's ports on one plane now, an entry per sub-plane (GB/s)."""

    @property
    def out_gbps(self) -> Sequence[float]: ...

    @property
    def in_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_out_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_in_gbps(self) -> Sequence[float]: ...


class Contention(Protocol):
    """Bandwidth that flows get beside other tenants' traffic; None if it is not known."""

    def exchange_gbps(self, nodes: frozenset[str]) -> float | None:
        """Return what the slowest die sends in an all-to-all over UB among all dies of these nodes."""

    def free_bandwidth(self, plane: str, node: str) -> FreeBandwidth | None:
        """Return the free capacity of a node's ports for single transfers."""


def _needed(machine: Calibration) -> tuple[str, ...]:
    """Return the planes that a node of that machine must reach to take part in serving."""
    return tuple(plane for plane in (UB, RDMA) if plane == RDMA or plane in machine.planes)


@dataclass
class Fabric:
    """The reduced view of one fabric generation. A node that is missing from a plane has rate 0 there."""

    generation: int
    ports: Mapping[str, Mapping[str, Ports]]
    latency_us: Mapping[str, float]
    contention: Contention | None = None
    needed: tuple[str, ...] = (UB, RDMA)
    """The planes that a node must reach to take part in serving."""
    reduced: dict[Hashable, float] = field(default_factory=dict, repr=False)
    """Cache of rates that other modules computed from this view; they are valid as long as it is."""
    _rates: dict[tuple[str, str, int, bool], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, view: Any, machine: Calibration | None = None) -> Fabric:
        """Build from a MatrixLink FabricView of that machine, by default a machine with all planes."""
        planes = {str(plane): current for plane, current in view.planes.items()}
        return cls(
            generation=view.generation,
            ports={plane: current.nodes for plane, current in planes.items()},
            latency_us={plane: current.latency_us for plane, current in planes.items()},
            needed=(UB, RDMA) if machine is None else _needed(machine),
        )

    @classmethod
    def healthy(cls, nodes: Iterable[str], generation: int = 1, machine: Calibration | None = None) -> Fabric:
        """Build a fault-free, otherwise idle fabric for those nodes at the machine's port rates, for experiments
        without a link service."""
        current, machine = list(nodes), machine or load_calibration()
        sub_planes = int(machine.ub_sub_planes)
        kinds = {
            UB: PortRates([machine.ub_uplink_gbps] * sub_planes, [machine.ub_port_gbps] * sub_planes),
            RDMA: PortRates([machine.rdma_node_gbps], [machine.rdma_port_gbps]),
            VPC: PortRates([machine.vpc_node_gbps], [machine.vpc_node_gbps]),
        }
        latency = {UB: machine.ub_latency_us, RDMA: machine.rdma_latency_us, VPC: machine.vpc_latency_us}
        ports = {plane: dict.fromkeys(current, kinds[plane]) for plane in machine.planes}
        return cls(generation, ports, latency, needed=_needed(machine))

    def restricted_to(self, nodes: Iterable[str]) -> Fabric:
        """Return the view restricted to those nodes."""
        kept = set(nodes)
        ports = {
            plane: {node: current for node, current in by_node.items() if node in kept}
            for plane, by_node in self.ports.items()
        }
        return self._with(ports, self.contention)

    def with_contention(self, contention: Contention | None) -> Fabric:
        """Return the same view with that contention."""
        return self._with(self.ports, contention)

    def scaled_by(self, shares: Mapping[str, float]) -> Fabric:
        """Return the view with each port's rate scaled by its plane's share (1 if not given)."""
        if all(share == 1 for share in shares.values()):
            return self
        ports = {
            plane: {
                node: PortRates(
                    [rate * shares.get(plane, 1.0) for rate in current.uplink_gbps],
                    [rate * shares.get(plane, 1.0) for rate in current.endpoint_gbps],
                )
                for node, current in by_node.items()
            }
            for plane, by_node in self.ports.items()
        }
        return self._with(ports, self.contention)

    def _with(self, ports: Mapping[str, Mapping[str, Ports]], contention: Contention | None) -> Fabric:
        return Fabric(self.generation, ports, self.latency_us, contention, self.needed)

    @property
    def all_nodes(self) -> set[str]:
        """Every node with a port on any plane."""
        return {node for by_node in self.ports.values() for node in by_node}

    def same_as(self, other: Fabric) -> bool:
        """Whether both views have the same generation and the same nodes."""
        return (self.generation, self.all_nodes) == (other.generation, other.all_nodes)

    def excluding(self, nodes: Iterable[str]) -> Fabric:
        """Return the view without those nodes, at the same generation."""
        unused = self.all_nodes.intersection(nodes)
        return self.restricted_to(self.all_nodes - unused) if unused else self

    def without(self, nodes: Iterable[str]) -> Fabric:
        """Return the view of the next generation, in which those nodes are gone."""
        fabric = self.restricted_to(self.all_nodes.difference(nodes))
        fabric.generation = self.generation + 1
        return fabric

    @property
    def nodes(self) -> list[str]:
        """Sorted nodes that can take part in serving: those that reach every needed plane."""
        first, *others = (self.ports.get(plane, {}) for plane in self.needed)
        everywhere = [first, *others]
        return sorted(node for node in first if all(node in ports and _sum(ports[node]) > 0 for ports in everywhere))

    def exchange_gbps(self, nodes: Sequence[str], ranks: int, dies_per_node: int = DIES_PER_NODE) -> float:
        """Rate at which the slowest die sends in an all-to-all over UB among `ranks` dies on these nodes."""
        if self.contention is not None:
            found = self.contention.exchange_gbps(frozenset(nodes))
            if found is not None:
                return found
        senders = min(ranks, dies_per_node)
        remote = (ranks - senders) / max(1, ranks - 1)
        return min((self.granted_die_gbps(UB, node, senders, remote) for node in nodes), default=0.0)

    def die_gbps(self, plane: str, node: str, senders: int = DIES_PER_NODE, into: bool = False) -> float:
        """Rate of each of a node's `senders` endpoints when all send to other nodes, or (`into`) receive from them."""
        key = (plane, node, senders, into)
        if key not in self._rates:
            left = self._free_bandwidth(plane, node)
            if left is None:
                self._rates[key] = self.granted_die_gbps(plane, node, senders, 1.0)
            else:
                ports = left.in_gbps if into else left.out_gbps
                ends = left.endpoint_in_gbps if into else left.endpoint_out_gbps
                self._rates[key] = sum(_lanes(ports, ends, senders, 1.0))
        return self._rates[key]

    def node_gbps(self, plane: str, node: str, into: bool = False) -> float:
        """Rate at which a whole node can send, or (`into`) receive."""
        key = (plane, node, 0, into)
        if key not in self._rates:
            left, ports = self._free_bandwidth(plane, node), self.ports.get(plane, {}).get(node)
            if left is not None:
                self._rates[key] = sum(left.in_gbps if into else left.out_gbps)
            else:
                self._rates[key] = 0.0 if ports is None else sum(ports.uplink_gbps)
        return self._rates[key]

    def _free_bandwidth(self, plane: str, node: str) -> FreeBandwidth | None:
        if self.contention is None or node not in self.ports.get(plane, {}):
            return None
        return self.contention.free_bandwidth(plane, node)

    def granted_die_gbps(self, plane: str, node: str, senders: int, remote: float) -> float:
        """Granted rate of each of `senders` endpoints when all send and the share `remote` leaves the node."""
        ports = self.ports.get(plane, {}).get(node)
        return 0.0 if ports is None else sum(_lanes(ports.uplink_gbps, ports.endpoint_gbps, senders, remote))

    def latency_s(self, plane: str) -> float:
        return self.latency_us.get(plane, 0.0) * 1e-6


def _lanes(uplinks: Sequence[float], ends: Sequence[float], senders: int, remote: float) -> list[float]:
    """Rate of one sender on each sub-plane: limited by its own port and its share of the node's uplink."""
    if remote <= 0:
        return list(ends)
    return [min(end, uplink / (senders * remote)) for end, uplink in zip(ends, uplinks, strict=True)]


def _sum(ports: Ports) -> float:
    return min(sum(ports.uplink_gbps), sum(ports.endpoint_gbps))
