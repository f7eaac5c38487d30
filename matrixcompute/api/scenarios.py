"""The routes of fault scenarios and their runs."""

from __future__ import annotations

from fastapi import APIRouter

from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcompute import access
from matrixcompute.instances.scenarios import ScenarioRuns, Scenarios
from matrixcompute.store.scenarios import ScenarioRow
from matrixcompute.store.store import ComputeStore


def scenario_routes(store: ComputeStore, scenarios: Scenarios, runs: ScenarioRuns) -> APIRouter:
    """The routes of both kinds."""
    api = ResourceRoutes(store.records)
    kind = api.of(access.SCENARIOS)
    kind.list(scenarios.views)
    kind.get()
    kind.change("PUT", row=lambda name: (ScenarioRow, name), name="ensure_scenario")(scenarios.ensure)
    kind.change("DELETE", row=lambda name: (ScenarioRow, name), name="delete_scenario")(scenarios.delete)
    _runs(api.of(access.SCENARIO_RUNS), runs)
    return api.router


def _runs(kind: KindRoutes, runs: ScenarioRuns) -> None:
    kind.list()
    kind.get()
    kind.change("CREATE", status_code=201, name="create_scenario_run")(runs.create)
    kind.change("PUT", name="ensure_scenario_run")(runs.ensure)
    kind.change("POST :stop", status_code=202, after=runs.wake, name="stop_scenario_run")(runs.stop)
    kind.change("DELETE", name="delete_scenario_run")(runs.delete)
