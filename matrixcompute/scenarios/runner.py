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
from matrixcompute.scenarios.context import LEAST_PAUSE_S, Ended, RunContext
from matrixcompute.scenarios.phase import Phase
from matrixcompute.scenarios.preflight import Preflight, given_spec, preflight
from matrixcompute.scenarios.readings import Frame, read
from matrixcompute.scenarios.report import Entry, Outcome, RunReport, Verdict
from matrixcompute.scenarios.rollback import RUN_LABEL, delete_given, roll_back
from matrixcompute.scenarios.runs import PhaseName
from matrixcompute.scenarios.schema import Expectation, Scenario, SteadyState, seconds
from matrixcompute.scenarios.world import Look, World

GIVEN_WITHIN = "1h"
"""How long an instance that a scenario needs may take to come up."""


@dataclass
class ScenarioRunner:
    """One run. `prefix`: the prefix of all its fault names. `tell` is called with each entry, `enter` with each phase.

    With `undoes_cancelled`, a cancelled run is rolled back at once; without it, by the host's next process, as after a
    kill.
    """

    name: str
    scenario: Scenario
    world: World
    clock: Clock
    prefix: str
    version: str = ""
    replay: str = ""
    tell: Callable[[Entry], object] = lambda entry: None
    enter: Callable[[PhaseName], object] = lambda phase: None
    undoes_cancelled: bool = True

    def __post_init__(self) -> None:
        started_at = self.clock.now()
        self.run_id = f"{int(started_at * 1000) % 0xFFFFFFFF:08x}"
        self.names = f"{self.prefix}{self.name[:24].rstrip('-')}-{self.run_id}-"
        self._run = RunContext(self.scenario, self.world, self.clock, self.names, self.tell)
        self._report = RunReport(
            scenario=self.name, run=self.run_id, seed=self.scenario.seed, version=self.version, replay=self.replay,
            started_at=timestamp(started_at), entries=[],
        )  # fmt: skip
        self._made: list[str] = []

    def stop(self, reason: str) -> None:
        """End it as STOPPED at the next look."""
        self._run.stop_reason = reason
        self._run.stopping.set()

    async def run(self) -> RunReport:
        """Run it and return the report, whatever happens. Raises MatrixError if it is refused before any change."""
        ready = await preflight(self.name, self.scenario, self.world)
        try:
            await self._live(ready)
            self._end("PASS", "every expectation was met")
        except Ended as ended:
            self._end(ended.verdict, ended.reason)
        except MatrixError as refused:
            self._end("INVALID", f"{refused.reason}: {refused.message}")
        except BaseException:
            if self.undoes_cancelled:
                await asyncio.shield(self._undo())
            raise
        await self._undo()
        self._report.entries = self._run.entries
        self._report.seconds = self._run.seconds
        return self._report.sealed()

    def _end(self, verdict: Verdict, reason: str) -> None:
        self._report.verdict, self._report.reason = verdict, reason

    async def _live(self, ready: Preflight) -> None:
        self.enter("Preparing")
        if await self._give(ready):
            ready = await preflight(self.name, self.scenario, self.world)
            for key in ready.planned:
                raise Ended("INVALID", _deleted(key))
        self._report.targets = ready.targets
        for target, chosen in ready.targets.items():
            self._run.note("resolved", target, ", ".join(chosen))
        frame, control = Frame(self.scenario, ready.targets), self.scenario.control
        self.enter("SteadyState")
        await self._steady(frame, "start", "INVALID")
        if control is not None:
            self.enter("Control")
            self._run.note("control", f"without {', '.join(control.skip)}")
            outcomes = await self._play(ready, control.skip, control.expect)
            if missed := [each for each in outcomes if not each.passed]:
                raise Ended("INVALID", f"the control, without the fault: {missed[0].name}: {missed[0].message}")
            await self._steady(frame, "start", "INVALID")
        self.enter("Method")
        self._report.expectations = await self._play(ready, (), self.scenario.expect)
        if missed := [each for each in self._report.expectations if not each.passed]:
            raise Ended("FAIL", f"{missed[0].name}: {missed[0].message}")
        await self._steady(frame, "end", "FAIL")

    async def _play(self, ready: Preflight, skip: Sequence[str], expected: Sequence[Expectation]) -> list[Outcome]:
        """Play the method without the skipped actions, then clear its faults."""
        outcomes = await Phase(self._run, ready.targets, ready.strikes, skip, expected).run()
        await self._roll_back()
        return outcomes

    async def _give(self, ready: Preflight) -> bool:
        """Create the given instances that do not exist, and wait until all are Active. Returns whether any was new."""
        for key in ready.planned:
            self._made.append(key)
            label = {RUN_LABEL: self._run.names.rstrip("-")}
            await self.world.put("compute", "instances", key, {**given_spec(self.scenario.given[key]), "labels": label})
            self._run.note("given", key)
        for key in self.scenario.given:
            active = SteadyState(
                instance=key, state="Active", where={"conditions.Ready.status": "True"}, within=GIVEN_WITHIN
            )
            await self._wait_for(active, Frame(self.scenario, {}), f"given.{key}", "INVALID")
        return bool(ready.planned)

    async def _steady(self, frame: Frame, when: str, verdict: Verdict) -> None:
        for number, each in enumerate(self.scenario.steady_state):
            if each.mode in (when, "both"):
                await self._wait_for(each, frame, f"steadyState[{number}]", verdict)

    async def _wait_for(self, condition: SteadyState, frame: Frame, field: str, verdict: Verdict) -> None:
        until = self.clock.now() + seconds(condition.within)
        while True:
            now = self.clock.now()
            reading = await read(condition, Look(self.world), frame)
            if reading.holds:
                self._run.note("steady", condition.sentence())
                return
            self._run.check_stopped()
            if reading.gone in self._made and verdict == "INVALID":
                raise Ended(verdict, _deleted(reading.gone))  # nobody creates it again
            if now >= until - LEAST_PAUSE_S / 2:
                self._run.note("unsteady", condition.sentence(), reading.message)
                raise Ended(verdict, f"{field} does not hold: {condition.sentence()}: {reading.message}")
            await self._run.pause(until)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _roll_back(self) -> None:
        for each in await roll_back(self.world, self._run.names, self.clock):
            self._run.note("cleared", each.removeprefix(self._run.names))

    async def _undo(self) -> None:
        """Clear the faults and delete the created instances, whatever happened."""
        self.enter("RollingBack")
        try:
            await self._roll_back()
            left = await delete_given(self.world, self._made, self.clock)
            self._run.note("rolledBack", self.name, f"still being deleted: {', '.join(left)}" if left else "")
        except MatrixError as refused:
            self._run.note("left", self.name, f"{refused.reason}: {refused.message}; the next run rolls back")


def _deleted(key: str) -> str:
    return f"given.{key}: the instance was created for this run, and somebody has deleted it since"
