"""Scenario runs: play the one that has waited longest to its end, then the next.

That a run has begun, and the prefix of its fault names, is stored before anything is injected. A run that has begun but
is not being played was interrupted, by the end of the process or of its leadership. It is not resumed, since the missed
observations cannot be made up for: faults with its prefix are cleared, and it ends as INVALID.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcompute.instances.scenarios import STOPPED_BY
from matrixcompute.scenarios.report import Entry, RunReport
from matrixcompute.scenarios.rollback import clean_up
from matrixcompute.scenarios.runner import ScenarioRunner
from matrixcompute.scenarios.runs import PhaseName
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixcompute.store.scenarios import ScenarioRunRow, next_run, runs_begun
from matrixcompute.store.store import ComputeStore

log = logging.getLogger(__name__)

FAULT_PREFIX = "scenario-run-"
"""The prefix of the fault names of MatrixCompute's runs."""
INTERRUPTED = "MatrixCompute stopped or lost its leadership during the run, which proves nothing; it is rolled back"


class ScenarioRunReconciler:
    """`reconcile` rolls back interrupted runs and plays one. `wake` is called if there is more to do; call `check_stop`
    when the run that is playing may have been stopped."""

    def __init__(self, store: ComputeStore, clients: ServiceClients, clock: Clock, version: str = "") -> None:
        self._store = store
        self._clients = clients
        self._clock = clock
        self._version = version
        self._stop_requested = asyncio.Event()
        self.wake: Callable[[], None] = lambda: None

    def check_stop(self) -> None:
        self._stop_requested.set()

    async def reconcile(self) -> str:
        """Returns when the run is over, which may take a long time."""
        for name in [row.name for row in self._store.records.query_unless_known_empty(ScenarioRunRow, runs_begun)]:
            await self._roll_back(name)
        waiting = self._store.records.query_unless_known_empty(ScenarioRunRow, next_run)
        if not waiting:
            return "no scenario waits"
        name = waiting[0].name
        if await self._run(name):
            self.wake()
        return f"played {name}"

    # -- playing -------------------------------------------------------------------------------------------------------

    async def _run(self, name: str) -> bool:
        """Play one run. Returns whether it is over; if not, it waits until the services answer."""
        with self._store.transaction() as session:
            row = session.get(ScenarioRunRow, name)
            if row is None or row.state != "Pending":
                return True
            runner = ScenarioRunner(
                name, row.scenario, self._clients, self._clock, FAULT_PREFIX, self._version,
                on_entry=partial(self._record_entry, name), on_phase=partial(self._enter_phase, name),
                roll_back_on_cancel=False,
            )  # fmt: skip
            row.move("Running")
            row.fault_prefix, row.started_at, row.message = runner.fault_prefix, self._clock.now(), "running"
        try:
            report = await self._run_until_stopped(name, runner)
        except MatrixError as refused:
            return self._record_refusal(name, refused)
        self._record_report(name, report)
        return True

    async def _run_until_stopped(self, name: str, runner: ScenarioRunner) -> RunReport:
        """Play a run and return its report; stop it when that is requested."""
        playing = asyncio.create_task(runner.run())
        stop_requested = asyncio.create_task(self._stop_requested.wait())
        try:
            while not playing.done():
                if stop_requested.done():
                    self._stop_requested.clear()
                    stop_requested = asyncio.create_task(self._stop_requested.wait())
                with self._store.reading() as session:
                    row = session.get(ScenarioRunRow, name)
                    if row is not None and row.state == "Stopping":
                        runner.stop(row.message)
                await asyncio.wait({playing, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
            return playing.result()
        finally:
            playing.cancel()
            stop_requested.cancel()

    def _record_entry(self, name: str, entry: Entry) -> None:
        with self._store.transaction() as session:
            if (row := session.get(ScenarioRunRow, name)) is not None:
                row.append_entry(entry)

    def _enter_phase(self, name: str, phase: PhaseName) -> None:
        with self._store.transaction() as session:
            if (row := session.get(ScenarioRunRow, name)) is not None:
                row.enter_phase(phase, self._clock.now())

    def _record_refusal(self, name: str, refused: MatrixError) -> bool:
        """Record a refusal, which usually comes before any change, for now or for good. Returns whether it is over."""
        with self._store.transaction() as session:
            row = session.get(ScenarioRunRow, name)
            if row is None or row.phases:
                return True  # the next `reconcile` rolls it back
            if refused.retryable and row.state == "Running":
                row.move("Pending")
                row.started_at, row.message = None, f"{refused.reason}: {refused.message}"
                return False
            row.verdict = "STOPPED" if row.state == "Stopping" else "INVALID"
            field = f"{refused.field}: " if refused.field else ""
            row.message = f"{refused.reason}: {field}{refused.message}"
            row.complete(self._clock.now())
        return True

    def _record_report(self, name: str, report: RunReport) -> None:
        """Record the report. If not everything was undone, the next `reconcile` tries again."""
        undone = not any(each.what == "left" for each in report.entries)
        with self._store.transaction() as session:
            row = session.get(ScenarioRunRow, name)
            if row is None:
                return
            row.store_report(report)
            if undone:
                row.complete(self._clock.now())
            else:
                row.move("RollingBack")

    # -- interrupted runs ----------------------------------------------------------------------------------------------

    async def _roll_back(self, name: str) -> None:
        with self._store.transaction() as session:
            row = session.get(ScenarioRunRow, name)
            if row is None or not row.begun:
                return
            if row.verdict is None:
                stopped = row.state == "Stopping"
                row.verdict, row.message = ("STOPPED", STOPPED_BY) if stopped else ("INVALID", INTERRUPTED)
                row.enter_phase("RollingBack", self._clock.now())
            row.move("RollingBack")
            fault_prefix, begun_at = row.fault_prefix.rstrip("-"), row.started_at or self._clock.now()
        log.info("a scenario run was cut short", extra={"run": name})
        cleared = await clean_up(self._clients, fault_prefix, self._clock)
        with self._store.transaction() as session:
            row = session.get(ScenarioRunRow, name)
            if row is None or row.state != "RollingBack":
                return
            at_s = round(self._clock.now() - begun_at, 3)
            for each in cleared:
                row.append_entry(Entry(at_s=at_s, what="cleared", about=each.removeprefix(f"{fault_prefix}-")))
            row.append_entry(Entry(at_s=at_s, what="rolledBack", about=name))
            row.complete(self._clock.now())
