"""Defragmentations over HTTP, and the verb by which one member is moved."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.listing import IdempotencyKey, IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.api.mutations import Mutations, name_for
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.defragmentations import (
    DefragmentationRequest,
    DefragmentationView,
    MoveRefused,
    RelocateRequest,
)
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.store.defragmentations import DefragmentationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import AllocationRow


def defragmentation_routes(
    store: ResourceStore, allocator: Allocator, plans: DefragmentationService, carry_on: Callable[[], None]
) -> APIRouter:
    """`carry_on` nudges the watcher that carries plans on."""
    api = APIRouter(prefix="/v1")

    change = Mutations(store.records).run

    @api.post("/defragmentations", status_code=201, summary="A plan of moves that make room; nothing moves yet")
    async def propose(
        body: DefragmentationRequest,
        caller: CallerOf,
        idempotency_key: IdempotencyKey = None,
        validate_only: ValidateOnly = False,
    ) -> DefragmentationView:
        if body.name is None and idempotency_key is not None:
            body = body.model_copy(update={"name": name_for("defrag", caller, idempotency_key)})
        return await change(lambda: plans.propose(body), validate_only=validate_only)

    @api.get("/defragmentations")
    async def list_defragmentations(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "defragmentation", plans.list)

    @api.get("/defragmentations/{name}")
    async def get_defragmentation(name: str) -> DefragmentationView:
        return plans.get(name)

    @api.post("/defragmentations/{name}:approve", status_code=202)
    async def approve(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> DefragmentationView:
        view = await change(lambda: plans.approve(name, if_match), validate_only=validate_only)
        carry_on()
        return view

    @api.post("/defragmentations/{name}:cancel", status_code=202, summary="Stop after the move under way")
    async def cancel(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> DefragmentationView:
        view = await change(lambda: plans.cancel(name, if_match), validate_only=validate_only)
        carry_on()
        return view

    @api.post("/defragmentations/{name}:refuse", summary="For MatrixCompute: the move under way cannot be carried out")
    async def refuse(
        name: str, body: MoveRefused, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> DefragmentationView:
        view = await change(
            lambda: plans.refused(name, body),
            validate_only=validate_only,
            row=(DefragmentationRow, name),
            if_match=if_match,
        )
        carry_on()
        return view

    @api.delete("/defragmentations/{name}", status_code=204)
    async def delete_defragmentation(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> None:
        await change(lambda: plans.delete(name, if_match), validate_only=validate_only)

    @api.post("/allocations/{name}:relocate", summary="Take a successor for one member on a node that is named")
    async def relocate(
        name: str, body: RelocateRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> AllocationView:
        return await change(
            lambda: allocator.relocate(name, body),
            validate_only=validate_only,
            row=(AllocationRow, name),
            if_match=if_match,
        )

    return api
