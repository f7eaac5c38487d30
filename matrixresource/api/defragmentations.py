"""Defragmentations over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from matrixcommon.api.resource_routes import ResourceRoutes
from matrixresource.api.access import DEFRAGMENTATIONS
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.store.store import ResourceStore


def defragmentation_routes(
    store: ResourceStore, plans: DefragmentationService, carry_on: Callable[[], None]
) -> APIRouter:
    """`carry_on` nudges the watcher that carries plans on."""
    api = ResourceRoutes(store.records)
    kind = api.of(DEFRAGMENTATIONS)
    kind.list()
    kind.get()
    kind.change("CREATE", status_code=201, summary="A plan of moves that make room; nothing moves yet")(plans.propose)
    kind.change("POST :approve", status_code=202, after=carry_on)(plans.approve)
    kind.change("POST :cancel", status_code=202, after=carry_on, summary="Stop after the move under way")(plans.cancel)
    kind.change("DELETE", name="delete_defragmentation")(plans.delete)
    summary = "For MatrixCompute: the move under way cannot be carried out"
    kind.change("POST :refuse", name="refuse", after=carry_on, summary=summary)(plans.refused)
    return api.router
