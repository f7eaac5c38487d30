"""What MatrixLink asks of others: whether an agent can be reached, how a node's hardware looks to its agent, and what
comes back of what an agent sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from matrixlink.probing.plan import Probe, ProbePlan
from matrixresource.vocabulary.planes import Plane


class Reach(Protocol):
    """Who answers. Filled by the reports' leases."""

    def reachable(self, node: str) -> bool:
        """Whether the node's agent holds its lease, or has not had the time yet to show that it does not."""


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
class Sweep:
    """What came back of a round of probes: those that came through at less than their path's rate, with the share that
    did (0: lost), and the mean one-way latency of the others in us, plane by plane."""

    sent: int
    failed: Sequence[tuple[Probe, float]]
    latency_us: Mapping[Plane, float]


class Wires(Protocol):
    """What a node is connected to. Filled by the emulated fabric."""

    def sweep(self, plan: ProbePlan, node: str, round: int) -> Sweep:
        """Send the node's probes of that round."""
