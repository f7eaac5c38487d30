"""Scenarios that users have stored, and the runs of scenarios."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Float, String, Text, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.resource_row import ResourceRow, TimedStateRow
from matrixcompute.scenarios.report import Entry, RunReport
from matrixcompute.scenarios.runs import (
    PhaseName,
    RunPhase,
    ScenarioRunRequest,
    ScenarioRunSpec,
    ScenarioRunView,
    ScenarioView,
)
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.states import BEGUN, SCENARIO_RUN_STATES
from matrixcompute.store.store import Base


class ScenarioRow(ResourceRow, Base):
    """One scenario, in its wire form."""

    __tablename__ = "scenarios"
    kind = "scenario"

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)

    @property
    def scenario(self) -> Scenario:
        return Scenario.from_stored(self.spec)

    def view(self) -> ScenarioView:
        scenario = self.scenario
        return self.view_as(ScenarioView, **{field: getattr(scenario, field) for field in Scenario.model_fields})


class ScenarioRunRow(TimedStateRow, Base):
    """One run. `definition` is the scenario as it was when the run was requested; `phases`, `entries` and
    `expectations` are in their wire form."""

    __tablename__ = "scenario_runs"
    kind = "scenario run"
    MOVES = SCENARIO_RUN_STATES

    spec: Mapped[dict[str, Any]] = mapped_column(JSON)
    definition: Mapped[dict[str, Any]] = mapped_column(JSON)
    verdict: Mapped[str | None] = mapped_column(String(10))
    message: Mapped[str] = mapped_column(Text, default="")
    fault_prefix: Mapped[str] = mapped_column(String(63), default="")
    """The prefix of the names of its faults; stored before the first is injected."""
    phases: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    entries: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    targets: Mapped[dict[str, list[str]]] = mapped_column(JSON, default=dict)
    expectations: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    history_hash: Mapped[str] = mapped_column(String(16), default="")
    started_at: Mapped[float | None] = mapped_column(Float)
    finished_at: Mapped[float | None] = mapped_column(Float)

    @property
    def request(self) -> ScenarioRunRequest:
        return ScenarioRunRequest.from_stored(self.spec)

    @property
    def scenario(self) -> Scenario:
        return Scenario.from_stored(self.definition)

    @property
    def begun(self) -> bool:
        """Whether it may have injected faults or changed anything."""
        return self.state in BEGUN

    def enter_phase(self, phase: PhaseName, now: float) -> None:
        """Begin a phase, and end the previous one."""
        self.phases = [*self._with_phases_ended(now), RunPhase(name=phase, started_at=timestamp(now)).wire()]

    def append_entry(self, entry: Entry) -> None:
        self.entries = [*(self.entries or []), entry.wire()]

    def store_report(self, report: RunReport) -> None:
        """Store the results."""
        self.verdict, self.message = report.verdict, report.reason
        self.targets, self.history_hash = report.targets, report.history_hash
        self.expectations = [each.wire() for each in report.expectations]

    def complete(self, now: float) -> None:
        self.move("Completed")
        self.phases, self.finished_at = self._with_phases_ended(now), now

    def _with_phases_ended(self, now: float) -> list[dict[str, Any]]:
        return [{"finishedAt": timestamp(now), **each} for each in self.phases or []]

    def view(self) -> ScenarioRunView:
        request, scenario, phases = self.request, self.scenario, self.phases or []
        duration_s = None if self.started_at is None or self.finished_at is None else self.finished_at - self.started_at
        seed = scenario.seed if request.seed is None else request.seed
        replay = f"matrixctl scenario run {request.scenario} --seed {seed} --remote" if request.scenario else ""
        return self.view_as(
            ScenarioRunView,
            **{field: getattr(request, field) for field in ScenarioRunSpec.model_fields},
            title=scenario.title,
            phase=phases[-1]["name"] if phases else None,
            instances=scenario.instances,
            seconds=None if duration_s is None else round(duration_s, 3),
            replay=replay,
            started_at=None if self.started_at is None else timestamp(self.started_at),
            finished_at=None if self.finished_at is None else timestamp(self.finished_at),
        )


_BEGUN = select(ScenarioRunRow).where(ScenarioRunRow.state.in_(BEGUN)).order_by(ScenarioRunRow.name)
_LONGEST_PENDING = (
    select(ScenarioRunRow)
    .where(ScenarioRunRow.state == "Pending")
    .order_by(ScenarioRunRow.created_at, ScenarioRunRow.name)
    .limit(1)
)


def runs_begun(session: Session) -> list[ScenarioRunRow]:
    """The runs that may have injected faults or changed anything, ordered by name."""
    return list(session.scalars(_BEGUN))


def next_run(session: Session) -> list[ScenarioRunRow]:
    """The run that has waited longest, if one waits."""
    return list(session.scalars(_LONGEST_PENDING))
