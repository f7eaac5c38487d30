"""How full the machine is, over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from matrixresource.contract.capacity import CapacityView
from matrixresource.planning.capacity_report import CapacityReport


def capacity_routes(capacity: CapacityReport) -> APIRouter:
    api = APIRouter(prefix="/v1")

    @api.get("/capacity", summary="How full the machine is and how what is free lies, per cabinet and supernode")
    async def show_capacity() -> CapacityView:
        return capacity.view()

    return api
