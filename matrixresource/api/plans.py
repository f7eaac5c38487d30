"""Routes for plans, fragmentation and capacity. Nothing here writes."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.authorization import RequestCaller
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.persistence.searches import run_with_searches
from matrixresource.api import access
from matrixresource.contract.capacity import CapacityView
from matrixresource.contract.plans import FragmentationView, PlanRequest, PlanView
from matrixresource.planning.capacity_report import CapacityReport
from matrixresource.planning.planner import Planner
from matrixresource.store.store import ResourceStore


def plan_routes(store: ResourceStore, planner: Planner, capacity: CapacityReport) -> APIRouter:
    """The routes over one store's planner."""
    api = ResourceRoutes(store.records)

    @api.of(access.PLANS).ask(
        "CREATE", summary="Whether this would fit; if not, why not and what would help. Nothing is created."
    )
    async def plan(body: PlanRequest, caller: RequestCaller) -> PlanView:
        _, request = caller.claim(caller.key("plan"), body)
        for other in request.references:
            caller.check(other)

        async def answer() -> PlanView:
            return planner.plan(request)

        return await run_with_searches(answer, store.records.executor)

    @api.router.get("/fragmentation")
    async def fragmentation() -> FragmentationView:
        return planner.fragmentation()

    @api.router.get("/capacity", summary="Utilisation and distribution of free capacity, per cabinet and supernode")
    async def show_capacity() -> CapacityView:
        return capacity.view()

    return api.router
