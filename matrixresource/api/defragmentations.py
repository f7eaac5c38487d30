"""Defragmentations over HTTP, and the verb by which one member is moved."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.defragmentations import (
    DefragmentationRequest,
    DefragmentationView,
    MoveRefused,
    RelocateRequest,
)
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.store.store import ResourceStore


def defragmentation_routes(
    store: ResourceStore, allocator: Allocator, plans: DefragmentationService, carry_on: Callable[[], None]
) -> APIRouter:
    """`carry_on` nudges the watcher that carries plans on."""
    api = APIRouter(prefix="/v1")

    @api.post("/defragmentations", status_code=201, summary="A plan of moves that make room; nothing moves yet")
    async def propose(body: DefragmentationRequest, validate_only: ValidateOnly = False) -> DefragmentationView:
        return plans.propose(body, dry=validate_only)

    @api.get("/defragmentations")
    async def list_defragmentations(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "defragmentation", plans.list)

    @api.get("/defragmentations/{name}")
    async def get_defragmentation(name: str) -> DefragmentationView:
        return plans.get(name)

    @api.post("/defragmentations/{name}:approve", status_code=202)
    async def approve(name: str, if_match: IfMatch = None) -> DefragmentationView:
        view = plans.approve(name, if_match)
        carry_on()
        return view

    @api.post("/defragmentations/{name}:cancel", status_code=202, summary="Stop after the move under way")
    async def cancel(name: str, if_match: IfMatch = None) -> DefragmentationView:
        view = plans.cancel(name, if_match)
        carry_on()
        return view

    @api.post("/defragmentations/{name}:refuse", summary="For MatrixCompute: the move under way cannot be carried out")
    async def refuse(name: str, body: MoveRefused) -> DefragmentationView:
        view = plans.refused(name, body)
        carry_on()
        return view

    @api.delete("/defragmentations/{name}", status_code=204)
    async def delete_defragmentation(name: str, if_match: IfMatch = None) -> None:
        plans.delete(name, if_match)

    @api.post("/allocations/{name}:relocate", summary="Take a successor for one member on a node that is named")
    async def relocate(name: str, body: RelocateRequest) -> AllocationView:
        return allocator.relocate(name, body)

    return api
