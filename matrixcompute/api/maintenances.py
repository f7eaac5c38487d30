"""The routes of maintenances, and of the disruption budgets that limit them."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcompute import access
from matrixcompute.instances.disruption_budgets import DisruptionBudgets
from matrixcompute.instances.maintenances import Maintenances
from matrixcompute.store.store import ComputeStore


def maintenance_routes(store: ComputeStore, maintenances: Maintenances, budgets: DisruptionBudgets) -> APIRouter:
    """The routes of both kinds. A changed budget may let a maintenance proceed."""
    api = ResourceRoutes(store.records)
    _maintenances(api.of(access.MAINTENANCES), maintenances)
    kind = api.of(access.DISRUPTION_BUDGETS)
    kind.list()
    kind.get()
    kind.change("PUT", after=maintenances.wake, name="ensure_disruption_budget")(budgets.ensure)
    kind.change("DELETE", after=maintenances.wake, name="delete_disruption_budget")(budgets.delete)
    return api.router


def _maintenances(kind: KindRoutes, maintenances: Maintenances) -> None:
    kind.list()
    kind.get()
    kind.change("PUT", name="ensure_maintenance")(maintenances.ensure)
    kind.change("POST :pause", after=maintenances.wake, name="pause_maintenance")(maintenances.pause)
    kind.change("POST :resume", after=maintenances.wake, name="resume_maintenance")(maintenances.resume)
    kind.change("POST :abort", status_code=202, after=maintenances.wake, name="abort_maintenance")(maintenances.abort)
    kind.change("DELETE", name="delete_maintenance")(maintenances.delete)
