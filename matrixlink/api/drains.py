"""Routes for drains and what-ifs."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.authorization import RequestCaller
from matrixcommon.api.operations import operation_routes
from matrixcommon.api.resource_routes import PROJECT_QUERY, ResourceRoutes
from matrixcommon.workflows.operations import Operations
from matrixlink.admission.what_if import what_if
from matrixlink.api import access
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.maintenance.drain_workflow import DrainContext
from matrixlink.maintenance.drains import Drains
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import OperationRow


def drain_routes(
    slice_controller: SliceController, drains: Drains, operations: Operations[DrainContext, OperationRow]
) -> APIRouter:
    """The routes over one slice controller's drains, and the operations on them."""
    api = ResourceRoutes(slice_controller.store.records)

    @api.of(access.WHAT_IFS).ask(
        "CREATE",
        summary="The effects of a failure, a drain or a repair; nothing is changed",
        dependencies=PROJECT_QUERY,
    )
    async def ask_what_if(body: WhatIfRequest, caller: RequestCaller) -> WhatIfView:
        """Counts cover all slices, but those of projects that the caller may not see are not named."""
        judged = what_if(slice_controller.promises, body)
        return judged.model_copy(update={"slices": [each for each in judged.slices if caller.sees(each.project)]})

    kind = api.of(access.DRAINS)
    kind.list()
    kind.get()
    kind.change(
        "PUT", after=operations.wake, name="ensure_drain", summary="Take elements out of use, make before break"
    )(drains.ensure)
    kind.change("DELETE", name="delete_drain", summary="Return a drain's elements to service")(drains.restore)
    operation_routes(api, access.OPERATIONS, access.WORKFLOW_DRAINS, operations)
    api.of(access.STUCK).list(operations.stuck, description="Drains whose operation is stuck.")
    return api.router
