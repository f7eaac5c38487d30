"""Routes for the fabric: planes, QoS classes, switches and links."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.list_params import Params
from matrixcommon.api.listing import list_or_watch
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixlink.api import access
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import LinkRow
from matrixlink.telemetry.inventory import FabricInventory, check_plane, qos_classes


def fabric_routes(slice_controller: SliceController) -> APIRouter:
    """The routes over one slice controller's fabric."""
    store = slice_controller.store
    api = ResourceRoutes(store.records)
    inventory = FabricInventory(slice_controller)
    for kind, views in (
        (access.PLANES, inventory.planes),
        (access.SWITCHES, inventory.switches),
        (access.QOS_CLASSES, qos_classes),
    ):
        of_kind = api.of(kind)
        of_kind.list(views)
        of_kind.get()
    _links(api.of(access.LINKS), store, inventory)
    return api.router


def _links(links: KindRoutes, store: LinkStore, inventory: FabricInventory) -> None:
    links.get(inventory.link)

    @links.ask("LIST")
    async def list_links(
        request: Request,
        params: Params,
        plane: Annotated[str | None, Query(description="ub, rdma or vpc")] = None,
        node: Annotated[str | None, Query(description="links of one node")] = None,
    ) -> Response:
        if params.watch:
            check_plane(plane)
            narrow = params.restricted_to(plane=plane, node=node)
            return list_or_watch(request, narrow, store.records, LinkRow, lambda: inventory.links(plane, node))
        narrowed = not {"filter", "orderBy"}.isdisjoint(request.query_params)
        shown = inventory.link_page(plane, node, params, narrowed)
        return JsonResponse(shown | {"resourceVersion": store.records.latest()})
