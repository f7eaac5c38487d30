"""What CloudMatrix-Infer asks of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

CHANGED_FROM = 0.1
"""A rate that differs by less is the same."""


@dataclass(frozen=True)
class DecodeTraffic:
    """All-to-all among the decode nodes of an instance: GB/s that leave the node, per NPU."""

    instance: str
    nodes: tuple[str, ...]
    gbps_per_npu: float

    def close_to(self, other: DecodeTraffic | None) -> bool:
        """Whether the other needs not be reported anew."""
        if other is None or (self.instance, self.nodes) != (other.instance, other.nodes):
            return False
        return abs(self.gbps_per_npu - other.gbps_per_npu) <= CHANGED_FROM * other.gbps_per_npu


class FabricViews(Protocol):
    """MatrixLink, as far as the workload needs it."""

    async def fabric_view(self, instance: str) -> Any | None:
        """The instance's FabricView; None while it holds no slice. Raises Unavailable where the service is away."""


class Hardware(Protocol):
    """The machine the workload runs on, observed and not reported: a rank without power answers nobody at once, long
    before the control plane has missed its agent's heartbeats."""

    async def unpowered(self) -> frozenset[str]:
        """Nodes without power now. Raises Unavailable where the emulated hardware cannot be asked."""

    async def up(self) -> frozenset[str]:
        """Nodes that have booted as members: a rank can start there. Raises Unavailable as `dark` does."""

    async def switched_off(self) -> frozenset[str]:
        """Nodes that are kept for their instance and switched off, or about to be."""

    async def offer(self, name: str, traffic: DecodeTraffic | None) -> None:
        """Put what the workload sends on the ports under that name, in place of what was there; None: no more."""

    async def traffic_names(self) -> frozenset[str]:
        """The names of all that is put there."""
