"""Routes for communicators and forwarding tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.list_params import ListParams, Params
from matrixcommon.api.listing import list_or_watch, page, window
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import NotFound
from matrixlink.api import access
from matrixlink.communicators.service import Communicators
from matrixlink.communicators.views import TableViews, change_item, change_items, flow_item, flow_name
from matrixlink.contract.communicators import ForwardingTableView


def communicator_routes(communicators: Communicators) -> APIRouter:
    """The routes over one Communicators, for the supernodes that its fabric has at the time."""
    api = ResourceRoutes(communicators.store.records)
    shown: dict[str, TableViews] = {}

    def views(name: str) -> TableViews:
        """A supernode's tables, compared with those of its graph without any damage."""
        traffic = communicators.plane(name)
        if name not in shown or shown[name].topology is not traffic.supernode.topology:
            shown[name] = TableViews(traffic)
        return shown[name]

    # -- communicators -------------------------------------------------------------------------------------------------

    kind = api.of(access.COMMUNICATORS)
    kind.list(communicators.all)
    kind.get(communicators.get)
    kind.change("PUT", name="ensure_communicator", shown=communicators.get)(communicators.ensure)
    kind.change("DELETE", name="delete_communicator", after=communicators.synchronise)(communicators.delete)

    @kind.ask("GET /flows")
    async def list_flows(request: Request, name: str, params: Params) -> Response:
        traffic, group = communicators.traffic_and_group(name)
        flows = traffic.flows.flows_of(name) if group else slice(0, 0)
        numbers = {flow_name(number): number for number in range(flows.stop - flows.start)}
        return _paged(request, params, numbers, lambda number: flow_item(traffic, name, group, number) if group else {})

    @kind.ask("GET /changes")
    async def list_changes(request: Request, name: str, params: Params) -> Response:
        traffic, group = communicators.traffic_and_group(name)
        numbers = change_items(traffic, name, group) if group else {}
        return _paged(request, params, numbers, lambda at: change_item(traffic, name, group, at) if group else {})

    # -- forwarding tables ---------------------------------------------------------------------------------------------

    tables_of = api.of(access.FORWARDING_TABLES)

    def all_tables() -> list[ForwardingTableView]:
        communicators.synchronise()
        known = communicators.fabric.supernodes
        for gone in shown.keys() - known.keys():
            del shown[gone]
        return [
            tables.view(chip, communicators.plane(name).tables.version)
            for name, tables in ((name, views(name)) for name in known)
            for chip in tables.switches
        ]

    @tables_of.ask("LIST")
    async def list_tables(
        request: Request,
        params: Params,
        switch: Annotated[
            str | None, Query(description="list the entries of this chip; by default one line per chip")
        ] = None,
    ) -> Response:
        """A watch has a line for each chip of a supernode whose tables have a new version; entries have to be listed
        again."""
        if switch is not None:
            communicators.synchronise()
            tables, version = _chip(switch, "switch")
            return JsonResponse(page(tables.entries(switch), params) | {"switch": switch, "version": version})
        return list_or_watch(request, params, communicators.store.records, None, all_tables)

    @tables_of.ask("GET")
    async def get_table(name: str) -> ForwardingTableView:
        communicators.synchronise()
        tables, version = _chip(name, "name")
        return tables.view(name, version)

    def _chip(switch: str, field: str) -> tuple[TableViews, str]:
        supernode = communicators.fabric.supernode_of_part(switch)
        tables = views(supernode.name) if supernode is not None else None
        if supernode is None or tables is None or not tables.has(switch):
            first = next(iter(communicators.fabric.supernodes), None)
            chips = [] if first is None else list(views(first).switches)
            there = f"; there are {chips[0]}, {chips[-1]} ..." if chips else ""
            raise NotFound(f"there is no UB chip named {switch[:80]!r}{there}", field=field)
        return tables, communicators.plane(supernode.name).tables.version

    return api.router


def _paged(
    request: Request, params: ListParams, numbers: dict[str, int], item: Callable[[int], dict[str, Any]]
) -> Response:
    """A page of items that are computed when shown; only a filter or an order needs all of them."""
    if params.watch or not {"filter", "orderBy"}.isdisjoint(request.query_params):
        return JsonResponse(page([item(number) for number in numbers.values()], params))
    wanted, rest = window(len(numbers), params)
    return JsonResponse({"items": [item(numbers[name]) for name in sorted(numbers)[wanted]], **rest})
