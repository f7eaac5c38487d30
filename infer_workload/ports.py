"""What CloudMatrix-Infer asks of others."""

from __future__ import annotations

from typing import Any, Protocol


class FabricViews(Protocol):
    """MatrixLink, as far as the workload needs it."""

    async def fabric_view(self, instance: str) -> Any | None:
        """The instance's FabricView; None while it holds no slice. Raises Unavailable where the service is away."""
