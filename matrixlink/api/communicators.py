"""Communicators and forwarding tables over HTTP: one call in, one view out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from matrixcommon.api.authorization import CallerOf
from matrixcommon.api.listing import IfMatch, ListParams, Params, ValidateOnly, list_or_watch, page, window
from matrixcommon.model.errors import NotFound, NotYetSupported
from matrixlink.communicators.service import Communicators
from matrixlink.communicators.views import TableViews, change_item, change_items, flow_item, flow_name
from matrixlink.contract.communicators import CommunicatorRequest, CommunicatorView, ForwardingTableView


def communicator_routes(communicators: Communicators, supernodes: Collection[str]) -> APIRouter:
    """The routes over one Communicators, for a fabric of these supernodes."""
    api = APIRouter(prefix="/v1")
    records = communicators.store.records
    shown: dict[str, TableViews] = {}

    def views(name: str) -> TableViews:
        """A supernode's tables beside those that its graph has when all of it is whole."""
        traffic = communicators.plane(name)
        if name not in shown or shown[name].topology is not traffic.supernode.topology:
            shown[name] = TableViews(traffic)
        return shown[name]

    # -- communicators -------------------------------------------------------------------------------------------------

    @api.get("/communicators")
    async def list_communicators(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, records, "communicator", communicators.all)

    @api.get("/communicators/{name}")
    async def get_communicator(name: str) -> CommunicatorView:
        return communicators.get(name)

    @api.put("/communicators/{name}")
    async def ensure_communicator(
        name: str,
        body: CommunicatorRequest,
        caller: CallerOf,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> CommunicatorView:
        key, request = caller.claim(name, body)
        caller.check(request.slice)
        return communicators.ensure(key, request, if_match=if_match, validate_only=validate_only)

    @api.delete("/communicators/{name}")
    async def delete_communicator(name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False) -> Response:
        communicators.delete(name, if_match=if_match, validate_only=validate_only)
        return Response(status_code=204)

    @api.get("/communicators/{name}/flows")
    async def list_flows(request: Request, name: str, params: Params) -> Response:
        traffic, group = communicators.traffic_of(name)
        flows = traffic.flows.flows_of(name) if group else slice(0, 0)
        numbers = {flow_name(number): number for number in range(flows.stop - flows.start)}
        return _paged(
            request, params, numbers, lambda number: flow_item(traffic, name, group, number) if group else {}, "flows"
        )

    @api.get("/communicators/{name}/changes")
    async def list_changes(request: Request, name: str, params: Params) -> Response:
        traffic, group = communicators.traffic_of(name)
        numbers = change_items(traffic, name, group) if group else {}
        return _paged(
            request, params, numbers, lambda at: change_item(traffic, name, group, at) if group else {}, "changes"
        )

    # -- forwarding tables ---------------------------------------------------------------------------------------------

    @api.get("/forwarding-tables")
    async def list_tables(
        params: Params,
        switch: Annotated[str | None, Query(description="the entries of this chip; left out: a line per chip")] = None,
    ) -> Response:
        _refuse_watch(params, "forwarding-tables")
        communicators.synchronise()
        if switch is not None:
            tables, version = _chip(switch, "switch")
            return JSONResponse(page(tables.entries(switch), params) | {"switch": switch, "version": version})
        items = []
        for name in supernodes:
            tables = views(name)
            version = communicators.plane(name).tables.version
            items += [tables.view(chip, version).wire() for chip in tables.switches]
        return JSONResponse(page(items, params))

    @api.get("/forwarding-tables/{switch}")
    async def get_table(switch: str) -> ForwardingTableView:
        communicators.synchronise()
        tables, version = _chip(switch, "name")
        return tables.view(switch, version)

    def _chip(switch: str, field: str) -> tuple[TableViews, str]:
        name = switch.partition("-")[0]
        tables = views(name) if name in supernodes else None
        if tables is None or not tables.has(switch):
            raise NotFound(
                f"there is no UB chip named {switch[:80]!r}; there are sn0-c00-n0-l1p3, sn0-l2p3-k11 ...", field=field
            )
        return tables, communicators.plane(switch.partition("-")[0]).tables.version

    return api


def _paged(
    request: Request, params: ListParams, numbers: dict[str, int], item: Callable[[int], dict[str, Any]], noun: str
) -> Response:
    """A page of what is worked out when it is shown; only a filter or an order has to see all of it."""
    _refuse_watch(params, noun)
    if not {"filter", "orderBy"}.isdisjoint(request.query_params):
        return JSONResponse(page([item(number) for number in numbers.values()], params))
    wanted, rest = window(len(numbers), params)
    return JSONResponse({"items": [item(numbers[name]) for name in sorted(numbers)[wanted]], **rest})


def _refuse_watch(params: ListParams, noun: str) -> None:
    if params.watch:
        raise NotYetSupported(f"{noun} cannot be watched; watch communicators and links", field="watch")
