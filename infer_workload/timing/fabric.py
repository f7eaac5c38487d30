"""What the fabric lets a workload do, reduced to a few rates.

MatrixLink's view lists what is granted of each node's ports per sub-plane, whoever else may send. What truly gets
through depends on what others send now: where that is known (`Contention`), it is what counts. A collective that every
die takes part in is as fast as its slowest member, so all that a step's time needs is that member's rate when all send
at once. Traffic is striped over the sub-planes in proportion to what they have left, as MatrixLink routes it, so a pair
reaches the sum of them.

Rates are GB/s in one direction, latencies seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infer_workload.timing.calibration import RDMA, UB, VPC, Calibration, load_calibration
from matrixcommon.model.hardware_names import NPUS_PER_NODE

DIES_PER_NODE = 2 * NPUS_PER_NODE
"""Two dies a package: the machine that is emulated."""


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


class Left(Protocol):
    """What may be used of one node's ports on one plane now, an entry per sub-plane (GB/s)."""

    @property
    def out_gbps(self) -> Sequence[float]: ...

    @property
    def in_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_out_gbps(self) -> Sequence[float]: ...

    @property
    def endpoint_in_gbps(self) -> Sequence[float]: ...


class Contention(Protocol):
    """What flows get beside those of others; None where that is not known."""

    def exchange_gbps(self, nodes: frozenset[str]) -> float | None:
        """Of an all-to-all over UB among all dies of these nodes, what its slowest die sends."""

    def left(self, plane: str, node: str) -> Left | None:
        """What a node's ports have left for transfers that come one by one."""


def _needed(machine: Calibration) -> tuple[str, ...]:
    """The planes that a node of that machine has to reach to take part in serving."""
    return tuple(plane for plane in (UB, RDMA) if plane == RDMA or plane in machine.planes)


@dataclass
class Fabric:
    """The reduced view of one generation. A node missing from a plane has rate zero there."""

    generation: int
    ports: Mapping[str, Mapping[str, Ports]]
    latency_us: Mapping[str, float]
    contention: Contention | None = None
    needed: tuple[str, ...] = (UB, RDMA)
    """The planes that a node has to reach to take part in serving."""
    reduced: dict[Hashable, float] = field(default_factory=dict, repr=False)
    """Rates that others worked out from this view, kept here because they hold as long as it does."""
    _rates: dict[tuple[str, str, int, bool], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, view: Any, machine: Calibration | None = None) -> Fabric:
        """From a MatrixLink FabricView of that machine, by default of one with all planes."""
        planes = {str(plane): current for plane, current in view.planes.items()}
        return cls(
            generation=view.generation,
            ports={plane: current.nodes for plane, current in planes.items()},
            latency_us={plane: current.latency_us for plane, current in planes.items()},
            needed=(UB, RDMA) if machine is None else _needed(machine),
        )

    @classmethod
    def healthy(cls, nodes: Iterable[str], generation: int = 1, machine: Calibration | None = None) -> Fabric:
        """A whole fabric for those nodes, nobody else on it: the machine's port rates, for experiments without a link
        service."""
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

    def only(self, nodes: Iterable[str]) -> Fabric:
        """The same view as far as it speaks of those nodes."""
        kept = set(nodes)
        ports = {
            plane: {node: current for node, current in by_node.items() if node in kept}
            for plane, by_node in self.ports.items()
        }
        return self._with(ports, self.contention)

    def beside(self, contention: Contention | None) -> Fabric:
        """The same view beside others' traffic."""
        return self._with(self.ports, contention)

    def granted(self, shares: Mapping[str, float]) -> Fabric:
        """The same view with that share of every port, by plane; the rest is others'."""
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
        """Nodes that can take part in serving: those that reach every plane that is needed."""
        first, *others = (self.ports.get(plane, {}) for plane in self.needed)
        everywhere = [first, *others]
        return sorted(node for node in first if all(node in ports and _sum(ports[node]) > 0 for ports in everywhere))

    def exchange_gbps(self, nodes: Sequence[str], ranks: int, dies_per_node: int = DIES_PER_NODE) -> float:
        """What the slowest die of an all-to-all over UB sends, among `ranks` dies on these nodes."""
        if self.contention is not None:
            found = self.contention.exchange_gbps(frozenset(nodes))
            if found is not None:
                return found
        senders = min(ranks, dies_per_node)
        remote = (ranks - senders) / max(1, ranks - 1)
        return min((self.granted_die_gbps(UB, node, senders, remote) for node in nodes), default=0.0)

    def die_gbps(self, plane: str, node: str, senders: int = DIES_PER_NODE, into: bool = False) -> float:
        """What each of `senders` endpoints of a node reaches when all send to other nodes, or (`into`) receive."""
        key = (plane, node, senders, into)
        if key not in self._rates:
            left = self._left(plane, node)
            if left is None:
                self._rates[key] = self.granted_die_gbps(plane, node, senders, 1.0)
            else:
                ports = left.in_gbps if into else left.out_gbps
                ends = left.endpoint_in_gbps if into else left.endpoint_out_gbps
                self._rates[key] = sum(_lanes(ports, ends, senders, 1.0))
        return self._rates[key]

    def node_gbps(self, plane: str, node: str, into: bool = False) -> float:
        """What a whole node can send out, or (`into`) take in."""
        key = (plane, node, 0, into)
        if key not in self._rates:
            left, ports = self._left(plane, node), self.ports.get(plane, {}).get(node)
            if left is not None:
                self._rates[key] = sum(left.in_gbps if into else left.out_gbps)
            else:
                self._rates[key] = 0.0 if ports is None else sum(ports.uplink_gbps)
        return self._rates[key]

    def _left(self, plane: str, node: str) -> Left | None:
        if self.contention is None or node not in self.ports.get(plane, {}):
            return None
        return self.contention.left(plane, node)

    def granted_die_gbps(self, plane: str, node: str, senders: int, remote: float) -> float:
        """What each of `senders` endpoints is granted when all send and the share `remote` leaves the node."""
        ports = self.ports.get(plane, {}).get(node)
        return 0.0 if ports is None else sum(_lanes(ports.uplink_gbps, ports.endpoint_gbps, senders, remote))

    def latency_s(self, plane: str) -> float:
        return self.latency_us.get(plane, 0.0) * 1e-6


def _lanes(uplinks: Sequence[float], ends: Sequence[float], senders: int, remote: float) -> list[float]:
    """Per sub-plane, what one sender may push: its own port, or its part of the node's uplink."""
    if remote <= 0:
        return list(ends)
    return [min(end, uplink / (senders * remote)) for end, uplink in zip(ends, uplinks, strict=True)]


def _sum(ports: Ports) -> float:
    return min(sum(ports.uplink_gbps), sum(ports.endpoint_gbps))
