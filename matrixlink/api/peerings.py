"""Routes for peerings and reachability."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from matrixcommon.api.authorization import Caller, RequestCaller
from matrixcommon.api.resource_routes import PROJECT_QUERY, ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.planes import Plane
from matrixlink.api import access
from matrixlink.contract.peerings import AcceptRequest, PeeringView, ReachabilityView
from matrixlink.peering.peerings import Peerings
from matrixlink.peering.reachability import evaluate_reachability, is_network
from matrixlink.slices.slice_controller import SliceController


def peering_routes(slice_controller: SliceController, peerings: Peerings) -> APIRouter:
    """The routes over one slice controller's peerings."""
    api = ResourceRoutes(slice_controller.store.records)
    kind = api.of(access.PEERINGS)

    def visible(name: str, caller: Caller) -> PeeringView:
        """The peering, if either of its slices belongs to the caller. Raises NotFound."""
        view = peerings.get(name)
        if not any(map(caller.principal.sees, view.projects)):
            raise NotFound(f"there is no peering named {view.name!r}", field="name")
        return view

    kind.list()

    @kind.ask("GET")
    async def get_peering(name: str, caller: RequestCaller) -> PeeringView:
        return visible(name, caller)

    kind.change("PUT", name="ensure_peering", summary="Let two slices of a plane reach each other")(peerings.ensure)

    @kind.change("POST :accept", allowed=visible, summary="Give the other project's consent")
    def accept_peering(name: str, body: AcceptRequest, caller: Caller) -> PeeringView:
        """A peering is named in the project that requested it (`?project=`)."""
        if not caller.principal.sees(body.project):
            raise NotFound(f"there is no project {body.project!r} here", field="project")
        return peerings.accept(name, body.project)

    @kind.change("DELETE", allowed=visible)
    def delete_peering(name: str) -> PeeringView | None:
        """Have both sides remove the peering."""
        return peerings.delete(name)

    @api.router.get(
        "/reachability",
        summary="Whether traffic from one to the other arrives, and by which rule",
        dependencies=PROJECT_QUERY,
    )
    async def ask_reachability(
        caller: RequestCaller,
        source: Annotated[str, Query(alias="from", min_length=1, max_length=253, description="slice, instance, CIDR")],
        target: Annotated[str, Query(alias="to", min_length=1, max_length=253, description="slice or instance")],
        plane: Plane | None = None,
        protocol: Literal["tcp", "udp", "icmp", "any"] = "tcp",
        port: Annotated[int | None, Query(ge=1, le=65535)] = None,
    ) -> ReachabilityView:
        source = source if is_network(source) else caller.resolve(source)
        target = caller.resolve(target)
        return evaluate_reachability(slice_controller.store, source, target, plane, protocol, port)

    return api.router
