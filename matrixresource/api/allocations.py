"""MatrixResource over HTTP: one call in, one view out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import Caller, CallerOf
from matrixcommon.api.fast_path import FastRouter
from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, json_response, list_or_watch, page
from matrixcommon.api.mutations import Mutations
from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import NodeName, NpuName
from matrixcommon.persistence.database_session import check_etag
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.quotas import Quotas
from matrixresource.contract.agents import NodeReports, ReportAnswer
from matrixresource.contract.allocations import (
    AllocationRequest,
    AllocationView,
    QuotaRequest,
    QuotaView,
    RenewRequest,
    ReplaceRequest,
)
from matrixresource.contract.nodes import InventoryView, NodeView, NpuView
from matrixresource.contract.plans import FragmentationView, PlanRequest, PlanView
from matrixresource.contract.reservations import ReservationRequest, ReservationView
from matrixresource.controllers.node_reports import NodeReportProcessor as ReportReader
from matrixresource.planning.planner import Planner
from matrixresource.store.node_inventories import inventory_view
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import AllocationRow, NodeRow
from matrixresource.store.topology_versions import spec_at

Asked = TypeVar("Asked", bound=AllocationRequest)


def routes(
    store: ResourceStore, allocator: Allocator, reports: ReportReader, clock: Clock, replenish: Callable[[], None]
) -> APIRouter:
    """The routes over one store. `replenish` nudges the watcher that refills spares."""
    api = FastRouter(prefix="/v1")
    change = Mutations(store.records).run

    @api.get("/nodes")
    async def list_nodes(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "node", _nodes)

    def _nodes() -> list[NodeView]:
        with store.reading() as session:
            return [row.view() for row in store.nodes(session)]

    @api.get("/nodes/{name}")
    async def get_node(name: NodeName) -> NodeView:
        with store.reading() as session:
            return store.node(session, name).view()

    @api.get("/nodes/{name}/inventory", summary="What the node reported to consist of, and how that differs")
    async def get_inventory(name: NodeName) -> InventoryView:
        with store.reading() as session:
            node = store.node(session, name)
            return inventory_view(session, node, spec_at(session, node.supernode))

    @api.post("/nodes/{name}:cordon")
    async def cordon(name: NodeName, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> NodeView:
        return await change(
            lambda: allocator.cordon(name, True), validate_only=validate_only, row=(NodeRow, name), if_match=if_match
        )

    @api.post("/nodes/{name}:uncordon")
    async def uncordon(name: NodeName, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> NodeView:
        view = await change(
            lambda: allocator.cordon(name, False), validate_only=validate_only, row=(NodeRow, name), if_match=if_match
        )
        replenish()
        return view

    @api.get("/npus")
    async def list_npus(request: Request, params: Params) -> Response:
        return JSONResponse(
            page([view.wire() for view in _npus()], params) | {"resourceVersion": store.records.latest()}
        )

    def _npus() -> list[NpuView]:
        with store.reading() as session:
            return [npu for row in store.nodes(session) for npu in row.npu_views()]

    @api.post("/npus/{name}:release", summary="Revoke that frequent faults separated this NPU")
    async def release_npu(name: NpuName, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> NpuView:
        released = await change(
            lambda: reports.release(name), validate_only=validate_only, row=(NodeRow, name.node), if_match=if_match
        )
        replenish()
        return next(npu for npu in released.npu_views() if npu.name == name)

    @api.get("/spares")
    async def list_spares(request: Request, params: Params) -> Response:
        spares = [view.wire() for view in _nodes() if view.role == "spare"]
        return JSONResponse(page(spares, params) | {"resourceVersion": store.records.latest()})

    @api.get("/allocations")
    async def list_allocations(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "allocation", _allocations)

    def _allocations() -> list[AllocationView]:
        with store.reading() as session:
            return [row.view() for row in store.allocations(session)]

    @api.get("/allocations/{name}", response_model=AllocationView)
    async def get_allocation(name: str) -> Response:
        with store.reading() as session:
            return json_response(store.allocation(session, name).view())

    @api.hot("PUT", "allocations", AllocationRequest)
    @api.put("/allocations/{name}", response_model=AllocationView)
    async def reserve(
        name: str,
        body: AllocationRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> Response:
        key, request = _own(caller, name, body)
        if validate_only:
            view = allocator.reserve(key, request, if_match=if_match, validate_only=True)
        else:
            view = await change(lambda: allocator.reserve(key, request, if_match=if_match))
        return json_response(view)

    @api.put("/allocations/{name}/binding", response_model=AllocationView)
    async def bind(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> Response:
        return json_response(
            await change(
                lambda: allocator.bind(name),
                validate_only=validate_only,
                row=(AllocationRow, name),
                if_match=if_match,
            )
        )

    @api.put("/allocations/{name}/move")
    async def move(
        name: str,
        body: AllocationRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> AllocationView:
        """Take successors for members that would lie elsewhere; `:changeOver` ends the move, DELETE gives it up."""
        _, request = _own(caller, name, body)
        if validate_only:
            with store.reading() as session:
                check_etag(store.allocation(session, name), if_match)
            return allocator.move(name, request, validate_only=True)
        return await change(lambda: allocator.move(name, request), row=(AllocationRow, name), if_match=if_match)

    @api.delete("/allocations/{name}/move")
    async def stay(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> AllocationView:
        return await change(
            lambda: allocator.abort_move(name),
            validate_only=validate_only,
            row=(AllocationRow, name),
            if_match=if_match,
        )

    @api.post("/allocations/{name}:changeOver")
    async def change_over(
        name: str,
        body: AllocationRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> AllocationView:
        _, request = _own(caller, name, body)
        return await change(
            lambda: allocator.cut_over(name, request),
            validate_only=validate_only,
            row=(AllocationRow, name),
            if_match=if_match,
        )

    @api.post("/allocations/{name}:replace")
    async def replace(
        name: str, body: ReplaceRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> AllocationView:
        return await change(
            lambda: allocator.replace(name, body.node, body.reason),
            validate_only=validate_only,
            row=(AllocationRow, name),
            if_match=if_match,
        )

    @api.post("/allocations/{name}:renew", response_model=AllocationView)
    async def renew(
        name: str, body: RenewRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        """Let the lease start again."""
        return json_response(
            await change(
                lambda: allocator.renew(name, body.lease_s),
                validate_only=validate_only,
                row=(AllocationRow, name),
                if_match=if_match,
            )
        )

    @api.hot("DELETE", "allocations")
    @api.delete("/allocations/{name}")
    async def release(
        name: str, caller: CallerOf, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> Response:
        view = await change(lambda: allocator.release(name, if_match=if_match), validate_only=validate_only)
        replenish()
        return Response(status_code=204) if view is None else json_response(view, 202)

    @api.get("/assignments")
    async def list_assignments(request: Request, params: Params) -> Response:
        def desired() -> Any:
            with store.reading() as session:
                return [row.view() for row in store.assignments(session)]

        return list_or_watch(request, params, store.records, "assignment", desired)

    @api.post("/node-reports")
    async def take_reports(
        body: NodeReports, caller: CallerOf, validate_only: ValidateOnly = False
    ) -> dict[str, list[ReportAnswer]]:
        """Each by itself: one for a node that the token does not speak for is refused, the others are taken."""
        theirs = [each for each in body.reports if caller.principal.reports_for(each.node)]
        taken = reports.take(theirs) if not validate_only else store.records.dry_run(lambda: reports.take(theirs))
        refused = {
            id(each): ReportAnswer(node=each.node, accepted=False, reason="Forbidden")
            for each in body.reports
            if not caller.principal.reports_for(each.node)
        }
        answers = iter(taken)
        return {"answers": [refused.get(id(each)) or next(answers) for each in body.reports]}

    planner = Planner(store, allocator.ledger, clock)

    @api.post("/plans", summary="Would this fit; if not, why not and what would help? Nothing is created.")
    async def plan(body: PlanRequest, caller: CallerOf) -> PlanView:
        _, request = _own(caller, caller.key("plan"), body)
        return planner.plan(request)

    @api.get("/fragmentation")
    async def fragmentation() -> FragmentationView:
        return planner.fragmentation()

    reservations = allocator.reservations

    @api.get("/reservations")
    async def list_reservations(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "reservation", reservations.list)

    @api.get("/reservations/{name}")
    async def get_reservation(name: str) -> ReservationView:
        return reservations.get(name)

    @api.put("/reservations/{name}")
    async def put_reservation(
        name: str,
        body: ReservationRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> ReservationView:
        key, request = _own(caller, name, body)
        return await change(lambda: reservations.put(key, request, if_match=if_match), validate_only=validate_only)

    @api.delete("/reservations/{name}", status_code=204)
    async def delete_reservation(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> None:
        await change(lambda: reservations.delete(name, if_match), validate_only=validate_only)

    quotas = Quotas(store)

    @api.get("/quotas")
    async def list_quotas(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "quota", quotas.list)

    @api.get("/quotas/{name}")
    async def get_quota(name: str) -> QuotaView:
        return quotas.get(name)

    @api.put("/quotas/{name}")
    async def put_quota(
        name: str, body: QuotaRequest, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> QuotaView:
        return await change(lambda: quotas.put(name, body, if_match), validate_only=validate_only)

    @api.delete("/quotas/{name}", status_code=204)
    async def delete_quota(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> None:
        await change(lambda: quotas.delete(name, if_match), validate_only=validate_only)

    return api


def _own(caller: Caller, key: str, body: Asked) -> tuple[str, Asked]:
    """The key and the request in the caller's project; what it refers to is the caller's too."""
    key, request = caller.claim(key, body)
    for other in request.references:
        caller.check(other)
    return key, request
