"""What CloudMatrix-Infer asks of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from infer_workload.own_traffic import DecodeTraffic


class FabricViews(Protocol):
    """MatrixLink, as far as the workload needs it."""

    async def fabric_view(self, instance: str) -> Any | None:
        """The instance's FabricView; None while it holds no slice. Raises Unavailable where the service is away."""


class Hardware(Protocol):
    """The machine the workload runs on. It is felt, not reported: a rank without power answers nobody at once, long
    before the control plane has missed its agent's heartbeats."""

    async def dark(self) -> frozenset[str]:
        """Nodes without power now. Raises Unavailable where the emulated hardware cannot be asked."""

    async def up(self) -> frozenset[str]:
        """Nodes that have booted as members: a rank can start there. Raises Unavailable as `dark` does."""

    async def offer(self, name: str, traffic: DecodeTraffic | None) -> None:
        """Put what the workload sends on the ports under that name, in place of what was there; None: no more."""

    async def offered(self) -> frozenset[str]:
        """The names of all that is put there."""
