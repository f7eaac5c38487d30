"""ScenarioRunner: play one scenario against running services, and always roll back.

It is a client like any other: it reads what the services show, and injects faults into the emulated hardware under
names that begin with the run's prefix. The next runner clears faults left under such names, so a runner that was killed
leaves nothing behind. The clock and the seed are passed in: in virtual time a run finishes at once, and the same seed
has the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import timestamp
from matrixcompute.scenarios.context import PAUSE_S_MIN, RunContext, RunEnded
from matrixcompute.scenarios.phase import Phase
from matrixcompute.scenarios.preflight import Preflight, given_spec, preflight
from matrixcompute.scenarios.readings import ReadContext, evaluate
from matrixcompute.scenarios.report import Entry, Outcome, RunReport, Verdict
from matrixcompute.scenarios.rollback import RUN_LABEL, delete_given, roll_back
from matrixcompute.scenarios.runs import PhaseName
from matrixcompute.scenarios.schema import Expectation, Scenario, SteadyState, seconds
from matrixcompute.scenarios.service_clients import ServiceClients, Snapshot

GIVEN_TIMEOUT = "1h"
"""How long an instance that a scenario needs may take to come up."""


@dataclass
class ScenarioRunner:
    """One run. `prefix`: the prefix of all its fault names. `on_entry` is called with each entry, `on_phase` with each
    phase.

    With `roll_back_on_cancel`, a cancelled run is rolled back at once; without it, by the host's next process, as after
    a kill.
    """

    name: str
    scenario: Scenario
    clients: ServiceClients
    clock: Clock
    prefix: str
    version: str = ""
    replay: str = ""
    on_entry: Callable[[Entry], object] = lambda entry: None
    on_phase: Callable[[PhaseName], object] = lambda phase: None
    roll_back_on_cancel: bool = True

    def __post_init__(self) -> None:
        started_at = self.clock.now()
        self.run_id = f"{int(started_at * 1000) % 0xFFFFFFFF:08x}"
        self.fault_prefix = f"{self.prefix}{self.name[:24].rstrip('-')}-{self.run_id}-"
        self._run = RunContext(self.scenario, self.clients, self.clock, self.fault_prefix, self.on_entry)
        self._report = RunReport(
            scenario=self.name, run=self.run_id, seed=self.scenario.seed, version=self.version, replay=self.replay,
            started_at=timestamp(started_at), entries=[],
        )  # fmt: skip
        self._created: list[str] = []

    def stop(self, reason: str) -> None:
        """End it as STOPPED at the next poll."""
        self._run.stop_reason = reason
        self._run.stopping.set()

    async def run(self) -> RunReport:
        """Run it and return the report, whatever happens. Raises MatrixError if it is refused before any change."""
        plan = await preflight(self.name, self.scenario, self.clients)
        try:
            await self._run_phases(plan)
            self._set_verdict("PASS", "every expectation was met")
        except RunEnded as ended:
            self._set_verdict(ended.verdict, ended.reason)
        except MatrixError as refused:
            self._set_verdict("INVALID", f"{refused.reason}: {refused.message}")
        except BaseException:
            if self.roll_back_on_cancel:
                await asyncio.shield(self._clean_up())
            raise
        await self._clean_up()
        self._report.entries = self._run.entries
        self._report.seconds = self._run.seconds
        return self._report.seal()

    def _set_verdict(self, verdict: Verdict, reason: str) -> None:
        self._report.verdict, self._report.reason = verdict, reason

    async def _run_phases(self, plan: Preflight) -> None:
        self.on_phase("Preparing")
        if await self._create_given(plan):
            plan = await preflight(self.name, self.scenario, self.clients)
            for key in plan.planned:
                raise RunEnded("INVALID", _deleted_message(key))
        self._report.targets = plan.targets
        for target, chosen in plan.targets.items():
            self._run.record("resolved", target, ", ".join(chosen))
        context, control = ReadContext(self.scenario, plan.targets), self.scenario.control
        self.on_phase("SteadyState")
        await self._check_steady_state(context, "start", "INVALID")
        if control is not None:
            self.on_phase("Control")
            self._run.record("control", f"without {', '.join(control.skip)}")
            outcomes = await self._play_method(plan, control.skip, control.expect)
            if missed := [each for each in outcomes if not each.passed]:
                raise RunEnded("INVALID", f"the control, without the fault: {missed[0].name}: {missed[0].message}")
            await self._check_steady_state(context, "start", "INVALID")
        self.on_phase("Method")
        self._report.expectations = await self._play_method(plan, (), self.scenario.expect)
        if missed := [each for each in self._report.expectations if not each.passed]:
            raise RunEnded("FAIL", f"{missed[0].name}: {missed[0].message}")
        await self._check_steady_state(context, "end", "FAIL")

    async def _play_method(
        self, plan: Preflight, skip: Sequence[str], expected: Sequence[Expectation]
    ) -> list[Outcome]:
        """Play the method without the skipped actions, then clear its faults."""
        outcomes = await Phase(self._run, plan.targets, plan.injections, skip, expected).run()
        await self._roll_back()
        return outcomes

    async def _create_given(self, plan: Preflight) -> bool:
        """Create the given instances that do not exist, and wait until all are Active. Returns whether any was new."""
        for key in plan.planned:
            self._created.append(key)
            label = {RUN_LABEL: self._run.fault_prefix.rstrip("-")}
            await self.clients.put(
                "compute", "instances", key, {**given_spec(self.scenario.given[key]), "labels": label}
            )
            self._run.record("given", key)
        for key in self.scenario.given:
            active = SteadyState(
                instance=key, state="Active", where={"conditions.Ready.status": "True"}, within=GIVEN_TIMEOUT
            )
            await self._wait_for(active, ReadContext(self.scenario, {}), f"given.{key}", "INVALID")
        return bool(plan.planned)

    async def _check_steady_state(self, context: ReadContext, when: str, verdict: Verdict) -> None:
        for number, each in enumerate(self.scenario.steady_state):
            if each.mode in (when, "both"):
                await self._wait_for(each, context, f"steadyState[{number}]", verdict)

    async def _wait_for(self, condition: SteadyState, context: ReadContext, field: str, verdict: Verdict) -> None:
        until = self.clock.now() + seconds(condition.within)
        while True:
            now = self.clock.now()
            reading = await evaluate(condition, Snapshot(self.clients), context)
            if reading.holds:
                self._run.record("steady", condition.sentence())
                return
            self._run.check_stopped()
            if reading.missing_instance in self._created and verdict == "INVALID":
                raise RunEnded(verdict, _deleted_message(reading.missing_instance))  # nobody creates it again
            if now >= until - PAUSE_S_MIN / 2:
                self._run.record("unsteady", condition.sentence(), reading.message)
                raise RunEnded(verdict, f"{field} does not hold: {condition.sentence()}: {reading.message}")
            await self._run.pause(until)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _roll_back(self) -> None:
        for each in await roll_back(self.clients, self._run.fault_prefix, self.clock):
            self._run.record("cleared", each.removeprefix(self._run.fault_prefix))

    async def _clean_up(self) -> None:
        """Clear the faults and delete the created instances, whatever happened."""
        self.on_phase("RollingBack")
        try:
            await self._roll_back()
            remaining = await delete_given(self.clients, self._created, self.clock)
            self._run.record(
                "rolledBack", self.name, f"still being deleted: {', '.join(remaining)}" if remaining else ""
            )
        except MatrixError as refused:
            self._run.record("left", self.name, f"{refused.reason}: {refused.message}; the next run rolls back")


def _deleted_message(key: str) -> str:
    return f"given.{key}: the instance was created for this run, and somebody has deleted it since"
