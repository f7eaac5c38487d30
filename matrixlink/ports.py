"""Interfaces that MatrixLink uses: whether an agent is reachable, which allocations exist, how a node's hardware looks
to its agent, and the results of probes and counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from matrixcommon.model.planes import Plane
from matrixlink.probing.plan import ProbePlan


class AgentReachability(Protocol):
    """Which agents respond. Implemented by the reports' leases."""

    def reachable(self, node: str) -> bool:
        """Whether the node's agent holds its lease, or has not had enough time yet to renew it."""


class Allocations(Protocol):
    """Which nodes belong to which allocation. Implemented by MatrixResource's client."""

    async def check(self, allocation: str, members: Sequence[str]) -> None:
        """Raises InvalidField for an unknown allocation, or a member outside of it; does nothing while MatrixResource
        does not answer."""

    async def present(self) -> frozenset[str]:
        """The keys of all existing allocations. Raises Unavailable while MatrixResource does not answer."""


class Hardware(Protocol):
    """A node as its link agent sees it. Implemented by the emulated node."""

    @property
    def name(self) -> str: ...

    @property
    def ports(self) -> dict[str, float]:
        """For ports below full rate, the share of it that is left, 0 to 1."""

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The forwarding state of the node's switches, by slice: written and read back by the agent."""


@dataclass(frozen=True, slots=True)
class ProbeRoundResult:
    """The results of a round of probes: those that achieved less than their path's rate, by number, with the share
    achieved (0: lost), and by plane the mean one-way latency of those that arrived, in us."""

    sent: int
    failed: Sequence[tuple[int, float]]
    latency_us: Mapping[Plane, float]


class ProbeTransport(Protocol):
    """The network that a node sends probes over. Implemented by the emulated fabric."""

    def sweep(self, plan: ProbePlan, node: str, number: int) -> ProbeRoundResult:
        """Send the node's probes of that round."""


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The counters of a node's ports at a moment of the emulated clock, since the node started: GB sent, received and
    dropped by port, in the order of the probe plan's paths (UB uplinks, RDMA ports, the card), and by slice."""

    at: float
    sent_gb: Sequence[float]
    received_gb: Sequence[float]
    dropped_gb: Sequence[float]
    slices: Mapping[str, tuple[float, float, float]]


class PortCounters(Protocol):
    """Port counters. Implemented by the emulated traffic."""

    def read(self, node: str) -> CounterSample | None:
        """None if nothing ever moved."""
