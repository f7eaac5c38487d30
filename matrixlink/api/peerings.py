"""Peerings over HTTP, and who reaches whom."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import Caller, CallerOf
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.api.mutations import Mutations
from matrixcommon.model.errors import NotFound
from matrixcommon.model.planes import Plane
from matrixlink.contract.peerings import AcceptRequest, PeeringRequest, PeeringView, ReachabilityView
from matrixlink.peering.peerings import Peerings
from matrixlink.peering.reachability import is_network, reachability
from matrixlink.slices.slice_controller import SliceController


def peering_routes(switchboard: SliceController, peerings: Peerings) -> APIRouter:
    """The routes over one switchboard's peerings."""
    api = APIRouter(prefix="/v1")
    change = Mutations(switchboard.store.records).run

    @api.get("/peerings")
    async def list_peerings(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, switchboard.store.records, "peering", peerings.all)

    def visible(name: str, caller: Caller) -> PeeringView:
        """The peering, to whom either of its slices belongs. Raises NotFound."""
        view = peerings.get(name)
        if not any(map(caller.principal.sees, view.projects)):
            raise NotFound(f"there is no peering named {view.name!r}", field="name")
        return view

    @api.get("/peerings/{name}")
    async def get_peering(name: str, caller: CallerOf) -> PeeringView:
        return visible(name, caller)

    @api.put("/peerings/{name}", summary="Have two slices of a plane reach each other")
    async def ensure_peering(
        name: str,
        body: PeeringRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> PeeringView:
        """The other slice may be another project's, named by its key; that one has to accept."""
        key, request = caller.claim(name, body)
        caller.check(key)
        if validate_only:
            return peerings.ensure(key, request, if_match=if_match, validate_only=True)
        return await change(lambda: peerings.ensure(key, request, if_match=if_match))

    @api.post("/peerings/{name}:accept", summary="The other project's consent")
    async def accept_peering(
        name: str, body: AcceptRequest, caller: CallerOf, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> PeeringView:
        """A peering is named in the project that asked for it (`?project=`)."""
        visible(name, caller)
        if not caller.principal.sees(body.project):
            raise NotFound(f"there is no project {body.project!r} here", field="project")
        return await change(lambda: peerings.accept(name, body.project, if_match), validate_only=validate_only)

    @api.delete("/peerings/{name}")
    async def delete_peering(
        name: str, caller: CallerOf, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        visible(name, caller)
        view = await change(lambda: peerings.delete(name, if_match=if_match), validate_only=validate_only)
        return Response(status_code=204) if view is None else JSONResponse(view.wire(), 202)

    @api.get("/reachability", summary="Whether something sent from one to the other arrives, and by which rule")
    async def ask_reachability(
        caller: CallerOf,
        source: Annotated[str, Query(alias="from", min_length=1, max_length=253, description="slice, instance, CIDR")],
        target: Annotated[str, Query(alias="to", min_length=1, max_length=253, description="slice or instance")],
        plane: Plane | None = None,
        protocol: Literal["tcp", "udp", "icmp", "any"] = "tcp",
        port: Annotated[int | None, Query(ge=1, le=65535)] = None,
    ) -> ReachabilityView:
        source = source if is_network(source) else caller.resolve(source)
        target = caller.resolve(target)
        return reachability(switchboard.store, source, target, plane, protocol, port)

    return api
