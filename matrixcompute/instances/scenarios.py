"""Scenarios and their runs. A request is checked against the machine as it is, and changes nothing on it.

Runs are carried out by their reconciler, one at a time, in the order of the requests.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField, MatrixError
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.persistence.database_session import check_etag, find
from matrixcompute.scenarios.checks import validate, validate_name
from matrixcompute.scenarios.library import library
from matrixcompute.scenarios.preflight import preview
from matrixcompute.scenarios.report import Preview
from matrixcompute.scenarios.runs import ScenarioRequest, ScenarioRunRequest, ScenarioRunView, ScenarioView
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixcompute.scenarios.states import SCENARIO_RUN_STATES
from matrixcompute.store.scenarios import ScenarioRow, ScenarioRunRow
from matrixcompute.store.store import ComputeStore

STOPPED_BY = "stopped by request"
STOPPED_STATES = ("Stopping", "RollingBack", "Completed")


class Scenarios:
    """The verbs over scenarios: those of the library, and those that users store."""

    def __init__(self, store: ComputeStore) -> None:
        self._store = store

    def views(self) -> list[ScenarioView]:
        with self._store.reading() as session:
            stored = [row.view() for row in session.scalars(select(ScenarioRow).order_by(ScenarioRow.name))]
        return [_built_in(name, each) for name, each in library().items()] + stored

    def ensure(self, name: str, body: ScenarioRequest) -> ScenarioView:
        """Store a scenario under `name`. Raises InvalidField with the field's path if it cannot be run, Conflict if the
        name is one of the library's."""
        self._check_not_built_in(validate_name(name), "change")
        scenario = validate(Scenario.model_validate(body.model_dump(exclude={"labels"})))
        with self._store.transaction() as session:
            row = session.get(ScenarioRow, name)
            if row is None:
                row = ScenarioRow(name=name, state="Available", generation=0, spec={}, conditions=[])
                session.add(row)
            if row.spec != scenario.wire():
                row.spec, row.generation = scenario.wire(), row.generation + 1
            if row.labels != body.labels:
                row.labels = body.labels
        return row.view()

    def delete(self, name: str) -> None:
        """Delete it. Its runs stay, since each keeps its own copy of the scenario."""
        self._check_not_built_in(name, "delete")
        with self._store.transaction() as session:
            session.delete(find(session, ScenarioRow, name))

    def _check_not_built_in(self, name: str, verb: str) -> None:
        if name in library():
            raise Conflict(f"cannot {verb} {name}, which comes with the project; use another name", field="name")


def _built_in(name: str, scenario: Scenario) -> ScenarioView:
    fields = {field: getattr(scenario, field) for field in Scenario.model_fields}
    return ScenarioView.from_stored({"name": name, "state": "Available", "built_in": True, **fields})


class ScenarioRuns:
    """The verbs over runs. `wake` has the reconciler look at them at once."""

    def __init__(self, store: ComputeStore, clients: ServiceClients, clock: Clock) -> None:
        self._store = store
        self._clients = clients
        self._clock = clock
        self.wake: Callable[[], None] = lambda: None

    async def create(self, body: ScenarioRunRequest, *, validate_only: bool = False) -> ScenarioRunView:
        """Run a scenario under the name in the body, or under a generated one."""
        return await self.ensure(body.name or f"run-{secrets.token_hex(4)}", body, validate_only=validate_only)

    async def ensure(
        self, name: str, body: ScenarioRunRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> ScenarioRunView:
        """Create a run, or find it if the same was requested before. With `validate_only`, the view's `preview` says
        what it would do, and to what.

        Raises InvalidField with the field's path for a scenario that cannot be run, Conflict if there is a different
        run of that name, Unavailable if a service does not answer.
        """
        validate_resource_name(name)
        if body.name not in (None, name):
            raise InvalidField(f"the name in the path is {name!r}", field="name")
        spec = body.model_copy(update={"name": None}).wire()
        with self._store.reading() as session:
            row = session.get(ScenarioRunRow, name)
            check_etag(row, if_match)
            if row is not None and row.spec == spec:
                return row.view()
            _reject_existing(row)
            scenario, field = self._scenario(session, body)
        preview_view = await self._preview(name, scenario, field)
        with self._store.transaction(dry=validate_only) as session:
            row = session.get(ScenarioRunRow, name)
            check_etag(row, if_match)
            if row is None or row.spec != spec:
                _reject_existing(row)
                row = ScenarioRunRow(
                    name=name, state="Pending", generation=1, labels=body.labels, conditions=[], spec=spec,
                    definition=scenario.wire(), message="waiting for its turn",
                )  # fmt: skip
                session.add(row)
            session.flush()
            view = row.view()
        if validate_only:
            return view.model_copy(update={"preview": preview_view})
        self.wake()
        return row.view()

    def _scenario(self, session: Session, body: ScenarioRunRequest) -> tuple[Scenario, str]:
        """The scenario to run, and the field of the request that holds it."""
        scenario, field = body.definition, "definition"
        if body.scenario is not None:
            stored, field = session.get(ScenarioRow, body.scenario), "scenario"
            scenario = library().get(body.scenario) or (stored.scenario if stored is not None else None)
            if scenario is None:
                raise InvalidField(
                    f"there is no scenario {body.scenario!r}; `get scenarios` lists them", field="scenario"
                )
        assert scenario is not None
        if body.seed is not None:
            scenario = scenario.model_copy(update={"seed": body.seed})
        return validate(scenario, f"{field}."), field

    async def _preview(self, name: str, scenario: Scenario, field: str) -> Preview:
        try:
            return await preview(name, scenario, self._clients)
        except MatrixError as refused:
            if not refused.retryable and refused.field:
                refused.field = f"{field}.{refused.field}"
            raise

    def stop(self, name: str) -> ScenarioRunView:
        """End a run as STOPPED and roll it back; a run that is still waiting ends at once."""
        with self._store.transaction() as session:
            row = find(session, ScenarioRunRow, name)
            if row.state not in STOPPED_STATES:
                row.move(SCENARIO_RUN_STATES.asked("stop", row.state))
                row.message = STOPPED_BY
                if row.state == "Completed":
                    row.verdict = "STOPPED"
                    row.complete(self._clock.now())
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a run that is over or has not begun. Raises Conflict for one under way."""
        with self._store.transaction() as session:
            row = find(session, ScenarioRunRow, name)
            if row.begun:
                raise Conflict(f"scenario run {name!r} is {row.state}; stop it first")
            session.delete(row)


def _reject_existing(row: ScenarioRunRow | None) -> None:
    if row is not None:
        raise Conflict(f"scenario run {row.name!r} exists with another spec; use another name", field="name")
