"""MatrixLink over HTTP: one call in, one view out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.fast_path import FastRouter
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, json_response, list_or_watch, list_or_watch_computed
from matrixcommon.api.mutations import Mutations
from matrixcommon.model.errors import NotFound
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ResourceView
from matrixlink.admission.backup_paths import backup_paths
from matrixlink.contract.slices import (
    BackupPathsView,
    LinkReportAnswer,
    LinkReportAnswers,
    LinkReports,
    LinkView,
    PlaneSummary,
    ProgramView,
    QosClassView,
    SliceRequest,
    SliceView,
    SwitchView,
)
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.fabric.condition.fabric_view import FabricView, PlaneView, joined
from matrixlink.model.protection import Protection
from matrixlink.model.slice_states import WITHDRAWING
from matrixlink.ports import Allocations
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import ProgramRow, SliceRow
from matrixlink.telemetry.inventory import FabricInventory, qos_classes


def routes(
    switchboard: SliceController, reports: LinkReportProcessor, allocations: Allocations | None = None
) -> APIRouter:
    """The routes over one switchboard. `allocations`: who knows which nodes a slice may have, if anybody is asked."""
    api = FastRouter(prefix="/v1")
    store = switchboard.store
    change = Mutations(store.records).run
    inventory = FabricInventory(switchboard)

    # -- the fabric ----------------------------------------------------------------------------------------------------

    @api.get("/planes")
    async def list_planes(request: Request, params: Params) -> Response:
        return list_or_watch_computed(request, params, store.records, inventory.planes)

    @api.get("/planes/{name}")
    async def get_plane(name: str) -> PlaneSummary:
        return inventory.plane(name)

    @api.get("/switches")
    async def list_switches(request: Request, params: Params) -> Response:
        return list_or_watch_computed(request, params, store.records, inventory.switches)

    @api.get("/switches/{name}")
    async def get_switch(name: str) -> SwitchView:
        return inventory.switch(name)

    @api.get("/links")
    async def list_links(
        request: Request,
        params: Params,
        plane: Annotated[str | None, Query(description="ub, rdma or vpc")] = None,
        node: Annotated[str | None, Query(description="links of one node")] = None,
    ) -> Response:
        if params.watch:
            return list_or_watch(request, params, store.records, "link", lambda: inventory.links(plane, node))
        narrowed = not {"filter", "orderBy"}.isdisjoint(request.query_params)
        shown = inventory.link_page(plane, node, params, narrowed)
        return JSONResponse(shown | {"resourceVersion": store.records.latest()})

    @api.get("/links/{name}")
    async def get_link(name: str) -> LinkView:
        return inventory.link(name)

    @api.get("/qos-classes")
    async def list_classes(request: Request, params: Params) -> Response:
        return list_or_watch_computed(request, params, store.records, qos_classes)

    @api.get("/qos-classes/{name}")
    async def get_class(name: str) -> QosClassView:
        found = next((view for view in qos_classes() if view.name == name), None)
        if found is None:
            raise NotFound(f"there is no QoS class named {name[:40]!r}", field="name")
        return found

    # -- slices ------------------------------------------------------------------------------------------------------

    @api.get("/slices")
    async def list_slices(request: Request, params: Params) -> Response:
        def views() -> list[ResourceView]:
            with store.reading() as session:
                return [row.view() for row in store.slices(session)]

        return list_or_watch(request, params, store.records, "slice", views)

    @api.get("/slices/{name}")
    async def get_slice(name: str) -> SliceView:
        with store.reading() as session:
            return store.slice(session, name).view()

    @api.hot("PUT", "slices", SliceRequest)
    @api.put("/slices/{name}", response_model=SliceView)
    async def ensure_slice(
        name: str, body: SliceRequest, caller: CallerOf, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        key, request = caller.claim(name, body)
        caller.check(request.allocation)
        caller.check(request.instance)
        if allocations is not None:
            await allocations.check(request.allocation, request.members)
        if validate_only:
            return json_response(switchboard.admit(key, request, if_match=if_match, validate_only=True))
        return json_response(await change(lambda: switchboard.admit(key, request, if_match=if_match)))

    @api.post("/slices/{name}:program", response_model=SliceView)
    async def program(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> Response:
        return json_response(
            await change(
                lambda: switchboard.program(name),
                validate_only=validate_only,
                row=(SliceRow, name),
                if_match=if_match,
            )
        )

    @api.hot("DELETE", "slices")
    @api.delete("/slices/{name}")
    async def withdraw(
        name: str, caller: CallerOf, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        view = await change(lambda: switchboard.withdraw(name, if_match=if_match), validate_only=validate_only)
        return Response(status_code=204) if view is None else json_response(view, 202)

    # -- what may be used --------------------------------------------------------------------------------------------

    @api.get("/slices/{name}/fabric-view")
    async def slice_fabric_view(name: str) -> FabricView:
        with store.reading() as session:
            return _fabric_view(store.slice(session, name))

    @api.get("/fabric-views/{instance}")
    async def instance_fabric_view(instance: str) -> FabricView:
        with store.reading() as session:
            rows = [row for row in store.of_instance(session, instance) if row.state != WITHDRAWING]
            if not rows:
                raise NotFound(f"no slice belongs to an instance named {instance[:80]!r}", field="instance")
            return joined(instance, [_fabric_view(row) for row in rows])

    @api.get("/backup-paths", summary="Over what each protected slice would go after a failure")
    async def list_backup_paths(request: Request, params: Params) -> Response:
        def views() -> list[BackupPathsView]:
            protected = [terms for terms in switchboard.promises.slices if terms.protection != Protection.NONE]
            return [backup_paths(switchboard.fabric, terms) for terms in protected]

        return list_or_watch_computed(request, params, store.records, views)

    @api.get("/backup-paths/{name}")
    async def get_backup_paths(name: str) -> BackupPathsView:
        terms = switchboard.promises.slices.get(name)
        if terms is None or terms.protection == Protection.NONE:
            raise NotFound(f"there is no protected slice named {name[:80]!r}", field="name")
        return backup_paths(switchboard.fabric, terms)

    # -- agents ------------------------------------------------------------------------------------------------------

    @api.get("/programs")
    @api.get("/routes")
    async def list_programs(request: Request, params: Params) -> Response:
        def views() -> list[ResourceView]:
            with store.reading() as session:
                return [row.view() for row in store.programs(session)]

        return list_or_watch(request, params, store.records, "program", views)

    @api.get("/programs/{name}")
    @api.get("/routes/{name}")
    async def get_program(name: str, caller: CallerOf) -> ProgramView:
        with store.reading() as session:
            found = session.get(ProgramRow, caller.key(name))
            hidden = found is not None and caller.principal.role == "agent"
            if found is None or (hidden and not caller.principal.reports_for(found.node)):
                raise NotFound(f"there is no program named {name[:80]!r}", field="name")
            return found.view()

    @api.hot_post("link-reports", LinkReports)
    @api.post("/link-reports", response_model=LinkReportAnswers)
    async def take_reports(body: LinkReports, caller: CallerOf, validate_only: ValidateOnly = False) -> Response:
        """Each by itself: one for a node that the token does not speak for is refused, the others are taken."""
        theirs = [each for each in body.reports if caller.principal.reports_for(each.node)]
        answers = iter(await change(lambda: reports.take(theirs), validate_only=validate_only))
        shown = [
            next(answers) if caller.principal.reports_for(each.node) else _not_theirs(each.node)
            for each in body.reports
        ]
        return json_response(LinkReportAnswers(answers=shown))

    return api


def _not_theirs(node: str) -> LinkReportAnswer:
    return LinkReportAnswer(node=node, accepted=False, reason="Forbidden", message="the token is another node's")


def _fabric_view(row: SliceRow) -> FabricView:
    return FabricView(
        slice=row.name,
        instance=row.instance,
        generation=row.view_generation,
        planes={Plane(row.plane): PlaneView.model_validate(row.fabric_view)},
    )
