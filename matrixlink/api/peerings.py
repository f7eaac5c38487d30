"""Peerings over HTTP, and who reaches whom."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import Asker, authorize_project
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.model.planes import Plane
from matrixlink.contract.peerings import AcceptRequest, PeeringRequest, PeeringView, ReachabilityView
from matrixlink.peering.peerings import Peerings
from matrixlink.peering.reachability import reachability
from matrixlink.slices.slice_controller import SliceController


def peering_routes(switchboard: SliceController, peerings: Peerings) -> APIRouter:
    """The routes over one switchboard's peerings."""
    api = APIRouter(prefix="/v1")

    @api.get("/peerings")
    async def list_peerings(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, switchboard.store.records, "peering", peerings.all)

    @api.get("/peerings/{name}")
    async def get_peering(name: str) -> PeeringView:
        return peerings.get(name)

    @api.put("/peerings/{name}", summary="Have two slices of a plane reach each other")
    async def ensure_peering(
        name: str, body: PeeringRequest, asker: Asker, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> PeeringView:
        authorize_project(asker, body.project)
        return peerings.ensure(name, body, if_match=if_match, validate_only=validate_only)

    @api.post("/peerings/{name}:accept", summary="The other project's consent")
    async def accept_peering(name: str, body: AcceptRequest, asker: Asker, if_match: IfMatch = None) -> PeeringView:
        authorize_project(asker, body.project)
        return peerings.accept(name, body.project, if_match)

    @api.delete("/peerings/{name}")
    async def delete_peering(
        name: str, asker: Asker, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        if validate_only:
            return JSONResponse(peerings.get(name).wire())
        terms = map(switchboard.promises.slices.get, peerings.get(name).slices)
        authorize_project(asker, *(each.project for each in terms if each))
        view = peerings.delete(name, if_match=if_match)
        return Response(status_code=204) if view is None else JSONResponse(view.wire(), 202)

    @api.get("/reachability", summary="Whether something sent from one to the other arrives, and by which rule")
    async def ask_reachability(
        source: Annotated[str, Query(alias="from", min_length=1, max_length=253, description="slice, instance, CIDR")],
        target: Annotated[str, Query(alias="to", min_length=1, max_length=253, description="slice or instance")],
        plane: Plane | None = None,
        protocol: Literal["tcp", "udp", "icmp", "any"] = "tcp",
        port: Annotated[int | None, Query(ge=1, le=65535)] = None,
    ) -> ReachabilityView:
        return reachability(switchboard.store, source, target, plane, protocol, port)

    return api
