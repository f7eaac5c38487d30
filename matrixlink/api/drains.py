"""Drains and what-ifs over HTTP: what is taken out of use, and what would happen if something were."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.api.mutations import Mutations
from matrixlink.admission.what_if import what_if
from matrixlink.contract.drains import DrainRequest, DrainView
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.maintenance.drains import Drains
from matrixlink.slices.slice_controller import SliceController


def drain_routes(switchboard: SliceController, drains: Drains) -> APIRouter:
    """The routes over one switchboard's drains."""
    api = APIRouter(prefix="/v1")
    change = Mutations(switchboard.store.records).run

    @api.post("/what-ifs", summary="What a failure, a drain or a repair would do; nothing changes")
    async def ask_what_if(body: WhatIfRequest, caller: CallerOf) -> WhatIfView:
        """Counts are of all slices; those of projects that the caller may not see are not named."""
        judged = what_if(switchboard.promises, body)
        return judged.model_copy(update={"slices": [each for each in judged.slices if caller.sees(each.project)]})

    @api.get("/drains")
    async def list_drains(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, switchboard.store.records, "drain", drains.all)

    @api.get("/drains/{name}")
    async def get_drain(name: str) -> DrainView:
        return drains.get(name)

    @api.put("/drains/{name}", summary="Take elements out of use, make before break")
    async def ensure_drain(
        name: str, body: DrainRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> DrainView:
        return drains.ensure(name, body, if_match=if_match, validate_only=validate_only)

    @api.delete("/drains/{name}", status_code=204, summary="Put a drain's elements back in service")
    async def delete_drain(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> None:
        await change(lambda: drains.restore(name, if_match=if_match), validate_only=validate_only)

    return api
