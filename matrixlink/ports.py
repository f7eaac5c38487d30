"""What MatrixLink asks of others: whether an agent can be reached, how a node's hardware looks to its agent, and what
comes back of what an agent sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from matrixcommon.model.planes import Plane
from matrixlink.probing.plan import ProbePlan


class AgentReachability(Protocol):
    """Who answers. Filled by the reports' leases."""

    def reachable(self, node: str) -> bool:
        """Whether the node's agent holds its lease, or has not had the time yet to show that it does not."""


class Allocations(Protocol):
    """Whose nodes are whose. Filled by MatrixResource's client."""

    async def check(self, allocation: str, members: Sequence[str]) -> None:
        """Raises InvalidField for an allocation that is not there, or a member outside of it; says nothing while nobody
        can be asked."""

    async def present(self) -> frozenset[str]:
        """The keys of all allocations there are. Raises Unavailable while nobody can be asked."""


class Hardware(Protocol):
    """A node as its link agent finds it. Filled by the emulated node."""

    @property
    def name(self) -> str: ...

    @property
    def ports(self) -> dict[str, float]:
        """The share of its full rate that a port has left, 0 to 1, for ports below it."""

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """What the node's switches forward by, slice by slice: written and read back by the agent."""


@dataclass(frozen=True, slots=True)
class ProbeRoundResult:
    """What came back of a round of probes: those that came through at less than their path's rate, by number, with the
    share that did (0: lost), and the mean one-way latency of all that came in us, plane by plane."""

    sent: int
    failed: Sequence[tuple[int, float]]
    latency_us: Mapping[Plane, float]


class ProbeTransport(Protocol):
    """What a node is connected to. Filled by the emulated fabric."""

    def sweep(self, plan: ProbePlan, node: str, number: int) -> ProbeRoundResult:
        """Send the node's probes of the round of that number."""


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The counters of a node's ports at a moment of the emulated clock, since the node began: GB sent, received and
    dropped by port, in the order of the probe plan's paths (UB uplinks, RDMA ports, the card), and by slice."""

    at: float
    sent_gb: Sequence[float]
    received_gb: Sequence[float]
    dropped_gb: Sequence[float]
    slices: Mapping[str, tuple[float, float, float]]


class PortCounters(Protocol):
    """The counters of the ports. Filled by the emulated traffic."""

    def read(self, node: str) -> CounterSample | None:
        """None where nothing ever moved."""
