"""MatrixResource's client with the verbs that only tests ask for."""

from __future__ import annotations

from typing import Any

from matrixcommon.api.client import call
from matrixresource.client import ResourceClient
from matrixresource.contract.defragmentations import DefragmentationRequest, DefragmentationView
from matrixresource.contract.plans import PlanRequest, PlanView


class WholeResourceClient(ResourceClient):
    async def get(self, path: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await call(self._http, "GET", path, params=params)

    async def plan(self, request: PlanRequest) -> PlanView:
        """Whether a request would fit now, and what would help if not."""
        return await self._ask(PlanView, "POST", "/v1/plans", request)

    async def propose(self, request: DefragmentationRequest) -> DefragmentationView:
        """A plan of moves that make room, for review."""
        return await self._ask(DefragmentationView, "POST", "/v1/defragmentations", request)

    async def approve(self, defragmentation: str) -> DefragmentationView:
        return await self._ask(DefragmentationView, "POST", f"/v1/defragmentations/{defragmentation}:approve")

    async def cancel(self, defragmentation: str) -> DefragmentationView:
        """Stop a defragmentation after the move under way."""
        return await self._ask(DefragmentationView, "POST", f"/v1/defragmentations/{defragmentation}:cancel")
