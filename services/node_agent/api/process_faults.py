"""Faults on the processes of a stack and their databases, over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from matrixcommon.api.list_params import Params
from matrixcommon.api.listing import page
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.hardware_names import validate_resource_name
from services.node_agent.access import PROCESS_FAULTS, PROCESSES
from services.node_agent.contract import ProcessFaultInjector, ProcessFaultRequest, ProcessFaultView, ProcessView


def process_fault_routes(executor: ProcessFaultInjector) -> APIRouter:
    api = ResourceRoutes()
    processes, faults = api.of(PROCESSES), api.of(PROCESS_FAULTS)

    @processes.ask("LIST", name="list_processes", summary="Services that can be given faults, and their real state")
    async def listed(params: Params) -> dict[str, Any]:
        return page([each.wire() for each in await executor.processes()], params)

    @processes.ask("GET", name="get_process")
    async def one(name: str) -> ProcessView:
        return await executor.process(name)

    @faults.ask("LIST", name="list_process_faults", summary="Faults on processes and their databases")
    async def all_faults(params: Params) -> dict[str, Any]:
        return page([each.wire() for each in await executor.faults()], params)

    @faults.ask("GET", name="get_process_fault")
    async def one_fault(name: str) -> ProcessFaultView:
        return await executor.fault(name)

    @faults.change("PUT", name="strike_process", summary="Kill or pause a service, or make its database fail")
    async def inject(name: str, body: ProcessFaultRequest, validate_only: bool = False) -> ProcessFaultView:
        """Inject a fault. A repeated request has no effect, and kills nothing twice."""
        return await executor.inject(validate_resource_name(name), body, validate_only)

    @faults.change("DELETE", name="clear_process_fault", summary="Undo a process fault")
    async def clear(name: str, validate_only: bool = False) -> None:
        await executor.fault(name)
        if not validate_only:
            await executor.clear(name)

    return api.router
