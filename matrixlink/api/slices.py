"""MatrixLink over HTTP: one call in, one view out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import Caller, CallerOf
from matrixcommon.api.list_params import Params
from matrixcommon.api.listing import list_or_watch
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixcommon.model.planes import Plane
from matrixlink.admission.backup_paths import backup_paths
from matrixlink.api import access
from matrixlink.contract.slices import (
    BackupPathsView,
    LinkReportAnswer,
    LinkReportAnswers,
    LinkReports,
    ProgramView,
    SliceRequest,
)
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.fabric.condition.fabric_view import FabricView, PlaneView, joined
from matrixlink.model.protection import Protection
from matrixlink.model.slice_states import WITHDRAWING
from matrixlink.ports import Allocations
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import LinkRow, ProgramRow, SliceRow
from matrixlink.telemetry.inventory import FabricInventory, check_plane, qos_classes


def routes(
    slice_controller: SliceController, reports: LinkReportProcessor, allocations: Allocations | None = None
) -> APIRouter:
    """The routes over one slice controller. `allocations` knows which nodes a slice may have, if anybody is asked."""
    store = slice_controller.store
    api = ResourceRoutes(store.records)
    inventory = FabricInventory(slice_controller)

    # -- the fabric ----------------------------------------------------------------------------------------------------

    for kind, views in (
        (access.PLANES, inventory.planes),
        (access.SWITCHES, inventory.switches),
        (access.QOS_CLASSES, qos_classes),
    ):
        of_kind = api.of(kind)
        of_kind.list(views)
        of_kind.get()

    links = api.of(access.LINKS)
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
            narrow = params.narrowed(plane=plane, node=node)
            return list_or_watch(request, narrow, store.records, LinkRow, lambda: inventory.links(plane, node))
        narrowed = not {"filter", "orderBy"}.isdisjoint(request.query_params)
        shown = inventory.link_page(plane, node, params, narrowed)
        return JSONResponse(shown | {"resourceVersion": store.records.latest()})

    # -- slices ------------------------------------------------------------------------------------------------------

    slices = api.of(access.SLICES)
    slices.list()
    slices.get()
    slices.change("POST :program")(slice_controller.program)
    slices.change("DELETE", fast=True)(slice_controller.withdraw)

    async def are_allocated(request: SliceRequest) -> None:
        if allocations is not None:
            await allocations.check(request.allocation, request.members)

    slices.change("PUT", name="ensure_slice", before=are_allocated, fast=True)(slice_controller.admit)

    # -- what may be used --------------------------------------------------------------------------------------------

    @slices.ask("GET /fabric-view")
    async def slice_fabric_view(name: str) -> FabricView:
        with store.reading() as session:
            return fabric_view(store.slice(session, name))

    @api.of(access.FABRIC_VIEWS).ask("GET")
    async def instance_fabric_view(name: str) -> FabricView:
        with store.reading() as session:
            rows = [row for row in store.of_instance(session, name) if row.state != WITHDRAWING]
            if not rows:
                raise NotFound(f"no slice belongs to an instance named {name[:80]!r}", field="instance")
            return joined(name, [fabric_view(row) for row in rows])

    paths = api.of(access.BACKUP_PATHS)

    def all_backup_paths() -> list[BackupPathsView]:
        protected = [terms for terms in slice_controller.promises.slices if terms.protection != Protection.NONE]
        return [backup_paths(slice_controller.fabric, terms) for terms in protected]

    def one_backup_path(name: str) -> BackupPathsView:
        terms = slice_controller.promises.slices.get(name)
        if terms is None or terms.protection == Protection.NONE:
            raise NotFound(f"there is no protected slice named {name[:80]!r}", field="name")
        return backup_paths(slice_controller.fabric, terms)

    paths.list(all_backup_paths, summary="Over what each protected slice would go after a failure")
    paths.get(one_backup_path)

    # -- agents ------------------------------------------------------------------------------------------------------

    async def get_program(name: str, caller: CallerOf) -> ProgramView:
        with store.reading() as session:
            found = session.get(ProgramRow, caller.key(name))
            hidden = found is not None and caller.principal.role == "agent"
            if found is None or (hidden and not caller.principal.reports_for(found.node)):
                raise NotFound(f"there is no program named {name[:80]!r}", field="name")
            return found.view()

    for kind in (access.PROGRAMS, access.ROUTES):
        api.of(kind).list()
        api.of(kind).ask("GET")(get_program)

    def fabric_view(row: SliceRow) -> FabricView:
        return FabricView(
            slice=row.name,
            instance=row.instance,
            machine=slice_controller.fabric.spec.model,
            generation=row.view_generation,
            planes={Plane(row.plane): PlaneView.from_stored(row.fabric_view)},
        )

    @api.of(access.LINK_REPORTS).change("CREATE", fast=True)
    def take_reports(body: LinkReports, caller: Caller) -> LinkReportAnswers:
        """Each by itself: one for a node that the token does not speak for is refused, the others are taken."""
        return LinkReportAnswers(answers=caller.answers_each(body.reports, reports.take, _refused))

    return api.router


def _refused(node: str, reason: str, message: str) -> LinkReportAnswer:
    return LinkReportAnswer(node=node, accepted=False, reason=reason, message=message)
