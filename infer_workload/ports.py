"""What CloudMatrix-Infer asks of others."""

from __future__ import annotations

from typing import Any, Protocol


class FabricViews(Protocol):
    """MatrixLink, as far as the workload needs it."""

    async def fabric_view(self, instance: str) -> Any | None:
        """The instance's FabricView; None while it holds no slice. Raises Unavailable where the service is away."""


class Hardware(Protocol):
    """The machine the workload runs on. It is felt, not reported: a rank without power answers nobody at once, long
    before the control plane has missed its agent's heartbeats."""

    async def dark(self) -> frozenset[str]:
        """Nodes without power now. Raises Unavailable where the emulated hardware cannot be asked."""
