"""Defragmentations over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.operations import operation_routes
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.workflows.operations import Operations
from matrixresource.api.access import DEFRAGMENTATIONS, OPERATIONS, WORKFLOW_DRAINS
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.defragmentation.workflows import DefragmentationContext
from matrixresource.store.operations import OperationRow
from matrixresource.store.store import ResourceStore


def defragmentation_routes(
    store: ResourceStore, plans: DefragmentationService, operations: Operations[DefragmentationContext, OperationRow]
) -> APIRouter:
    """Plans, and the operations that carry them out."""
    carry_on = operations.look_again
    api = ResourceRoutes(store.records)
    kind = api.of(DEFRAGMENTATIONS)
    kind.list()
    kind.get()
    kind.change("CREATE", status_code=201, summary="Plan moves that make room; nothing moves yet")(plans.propose)
    kind.change("POST :approve", status_code=202, after=carry_on)(plans.approve)
    kind.change("POST :cancel", status_code=202, after=carry_on, summary="Stop after the current move")(plans.cancel)
    kind.change("DELETE", name="delete_defragmentation")(plans.delete)
    summary = "For MatrixCompute: report that the current move cannot be carried out"
    kind.change("POST :refuse", name="refuse", after=carry_on, summary=summary)(plans.handle_refusal)
    operation_routes(api, OPERATIONS, WORKFLOW_DRAINS, operations)
    return api.router
