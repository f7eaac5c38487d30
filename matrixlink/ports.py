"""What MatrixLink asks of others: whether an agent can be reached, and how a node's hardware looks to its agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reach(Protocol):
    """Who answers. Filled by the reports' leases."""

    def reachable(self, node: str) -> bool:
        """Whether the node's agent holds its lease, or has not had the time yet to show that it does not."""


class Allocations(Protocol):
    """Whose nodes are whose. Filled by MatrixResource's client."""

    async def check(self, allocation: str, members: Sequence[str]) -> None:
        """Raises InvalidField for an allocation that is not there, or a member outside of it; says nothing while nobody
        can be asked."""


class Hardware(Protocol):
    """A node as its link agent finds it. Filled by the emulated node."""

    @property
    def name(self) -> str: ...

    @property
    def ports(self) -> dict[str, float]:
        """The share of its full rate that a port has left, 0 to 1, for ports below it."""
