"""The routes of a service's operations: get, list, watch, wait, cancel, resume, abandon; and drains of the engine."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query

from matrixcommon.api.authorization import ADMINS, EDITABLE, EDITORS, READ, VIEWERS, ResourceKind, Scope
from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.workflows.contract import AbandonRequest, OperationRecord, WorkflowDrainRequest, WorkflowDrainView
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.rows import OPEN, WorkflowDrainRow, WorkflowRow

OPERATION_VERBS = {
    **READ, "POST :wait": VIEWERS, "POST :cancel": EDITORS, "POST :resume": EDITORS, "POST :abandon": EDITORS,
}  # fmt: skip
"""Who may do what with the operations of their projects."""


def operation_kind(row: type[WorkflowRow], scope: Scope, roles: frozenset[str]) -> ResourceKind:
    """The declaration of a service's operations for which every verb is restricted to those roles."""
    verbs = dict.fromkeys(OPERATION_VERBS, roles)
    return ResourceKind("operations", scope, verbs, view=OperationRecord, row=row, queries=("POST :wait",))


def drain_kind(row: type[WorkflowDrainRow]) -> ResourceKind:
    """The declaration of drains of a service's engine, which are for administrators."""
    verbs = dict.fromkeys(EDITABLE, ADMINS)
    return ResourceKind(
        "workflow-drains", Scope.SERVICE, verbs, request=WorkflowDrainRequest, view=WorkflowDrainView, row=row
    )


def operation_routes(
    api: ResourceRoutes, kind: ResourceKind, drains: ResourceKind, operations: Operations[Any, Any]
) -> None:
    """Add the routes of operations, declared as `kind` with `OPERATION_VERBS`, and of `drains` of the engine."""
    store = operations.host.store
    routes = api.of(kind)
    routes.list()
    routes.get()

    @routes.ask("POST :wait")
    async def wait(
        name: str, timeout_s: Annotated[float, Query(alias="timeoutSeconds", gt=0, le=60)] = 30
    ) -> JsonResponse:
        """The operation once it is done, or its state after that many wall seconds."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        while True:
            with store.reading() as session:
                row = operations.row(session, name)
                left_s = ends_at - loop.time()
                if row.state not in OPEN or left_s <= 0:
                    return JsonResponse(row.view().wire())
            await store.records.changed(within_wall_s=min(1.0, left_s))

    routes.change("POST :cancel", status_code=202)(operations.cancel)
    routes.change("POST :resume", status_code=202)(operations.resume)

    @routes.change("POST :abandon", status_code=202)
    def abandon(name: str, body: AbandonRequest) -> OperationRecord:
        return operations.abandon(name, body.reason)

    routes = api.of(drains)
    routes.list()
    routes.get()
    routes.change("PUT", name="drain_workflows")(operations.drain)
    routes.change("DELETE", name="undrain_workflows")(operations.undrain)
