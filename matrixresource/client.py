"""ResourceClient: MatrixResource's verbs over HTTP, for the other services, the agents and matrixctl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

from matrixcommon.api.client import WatchEvent, at, call, list_all, watch
from matrixcommon.model.errors import NotFound
from matrixresource.contract.agents import NodeReport, ReportAnswer
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import (
    DefragmentationRequest,
    DefragmentationView,
    MoveRefused,
    RelocateRequest,
)
from matrixresource.contract.nodes import NodeView, SupernodeView
from matrixresource.contract.plans import PlanRequest, PlanView
from matrixresource.contract.topology import DomainView, SupernodeWiring


class ResourceClient:
    """Each verb raises the MatrixError that the service raised, or Unavailable."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def _allocation(
        self, method: str, name: str, verb: str = "", body: Any = None, validate_only: bool = False
    ) -> AllocationView:
        params = {"validateOnly": "true"} if validate_only else None
        answer = await call(self._http, method, at("allocations", name, verb), body=body, params=params)
        return AllocationView.model_validate(answer)

    async def _defragmentation(self, name: str, body: Any = None) -> DefragmentationView:
        answer = await call(self._http, "POST", f"/v1/defragmentations{name}", body=body)
        return DefragmentationView.model_validate(answer)

    async def nodes(self, filter: str | None = None) -> list[NodeView]:
        items = await list_all(self._http, "/v1/nodes", filter=filter)
        return [NodeView.model_validate(item) for item in items]

    async def allocations(self) -> list[AllocationView]:
        return [AllocationView.model_validate(item) for item in await list_all(self._http, "/v1/allocations")]

    async def find_allocation(self, name: str) -> AllocationView | None:
        try:
            return await self._allocation("GET", name)
        except NotFound:
            return None

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        return await self._allocation("PUT", name, "", request.wire(), validate_only)

    async def plan(self, request: PlanRequest) -> PlanView:
        """Whether a request would fit now, and what would help if not."""
        return PlanView.model_validate(await call(self._http, "POST", "/v1/plans", body=request.wire()))

    async def bind(self, name: str) -> AllocationView:
        return await self._allocation("PUT", name, "/binding")

    async def replace(self, name: str, node: str, reason: str) -> AllocationView:
        return await self._allocation("POST", name, ":replace", {"node": node, "reason": reason})

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        """Take successors for what would lie elsewhere; with `validate_only`, show the layout in the end."""
        return await self._allocation("PUT", name, "/move", request.wire(), validate_only)

    async def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Take a successor for one member on a node that is named."""
        return await self._allocation("POST", name, ":relocate", request.wire())

    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        return await self._allocation("POST", name, ":changeOver", request.wire())

    async def renew(self, name: str, lease_s: float, validate_only: bool = False) -> AllocationView:
        """Let a lease start again, for this long."""
        return await self._allocation("POST", name, ":renew", {"leaseS": lease_s}, validate_only)

    async def topology_version(self) -> str:
        """The name of the newest version; empty before the first."""
        try:
            return str((await call(self._http, "GET", "/v1/topology-versions/current"))["name"])
        except NotFound:
            return ""

    async def wiring(self, supernode: str) -> SupernodeWiring | None:
        """All that it takes to draw a supernode's graph."""
        try:
            return SupernodeWiring.model_validate(await call(self._http, "GET", f"/v1/supernodes/{supernode}/wiring"))
        except NotFound:
            return None

    async def domains(self, filter: str | None = None) -> list[DomainView]:
        """Cabinets and supernodes, and whether they take newcomers."""
        items = await list_all(self._http, "/v1/domains", filter=filter)
        return [DomainView.model_validate(item) for item in items]

    async def abort_move(self, name: str) -> AllocationView:
        """Give a move up."""
        return await self._allocation("DELETE", name, "/move")

    async def defragmentations(self, filter: str | None = None) -> list[DefragmentationView]:
        items = await list_all(self._http, "/v1/defragmentations", filter=filter)
        return [DefragmentationView.model_validate(item) for item in items]

    async def propose(self, request: DefragmentationRequest) -> DefragmentationView:
        """A plan of moves that make room, for review."""
        return await self._defragmentation("", request.wire())

    async def approve(self, defragmentation: str) -> DefragmentationView:
        return await self._defragmentation(f"/{defragmentation}:approve")

    async def cancel(self, defragmentation: str) -> DefragmentationView:
        """Stop a defragmentation after the move under way."""
        return await self._defragmentation(f"/{defragmentation}:cancel")

    async def refuse_move(self, defragmentation: str, reported: MoveRefused) -> DefragmentationView:
        """Say that the move under way cannot be carried out."""
        return await self._defragmentation(f"/{defragmentation}:refuse", reported.wire())

    async def release(self, name: str) -> bool:
        """Ask for release; True once the allocation is gone."""
        try:
            return await call(self._http, "DELETE", at("allocations", name)) == {}
        except NotFound:
            return True

    async def report(self, reports: list[NodeReport]) -> list[ReportAnswer]:
        body = {"reports": [report.wire() for report in reports]}
        answer = await call(self._http, "POST", "/v1/node-reports", body=body)
        return [ReportAnswer.model_validate(item) for item in answer["answers"]]

    async def get(self, path: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await call(self._http, "GET", path, params=params)

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Events of `nodes`, `allocations`, `assignments` or `defragmentations`."""
        return watch(self._http, f"/v1/{collection}", since=since)

    async def supernodes(self) -> list[SupernodeView]:
        return [SupernodeView.model_validate(item) for item in await list_all(self._http, "/v1/supernodes")]
