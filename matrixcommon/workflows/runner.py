"""WorkflowRunner: runs workflows to completion, across a crash at any point.

A step that raises StepPending is tried again at the next nudge; one that raises RewindToStep makes the workflow
continue from an earlier step. The names of a workflow's steps and the number of finished ones are durable. After a
crash the runner resumes every open workflow at the step it had reached, by name, so a release with other steps can
resume what an earlier one began. A workflow or step unknown to this release is stuck, and left alone until a release
knows it. A final refusal rolls the workflow back: finished steps are undone, last first, and the refusal becomes the
operation's error. A cancelled workflow is rolled back the same way.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic

from sqlalchemy.orm import Session

from matrixcommon.model.cancellation import raise_if_cancelled
from matrixcommon.model.clock import Clock, pause
from matrixcommon.model.errors import MatrixError, StaleLeader, Unavailable
from matrixcommon.model.resource_key import name_of, sibling_key
from matrixcommon.persistence.resource_row import ResourceRow
from matrixcommon.persistence.table_cache import all_rows, mapping_of
from matrixcommon.telemetry.trace import RESOURCE, resumed_span, traceparent
from matrixcommon.workflows.host import Host, R, UnreadablePayload
from matrixcommon.workflows.log import WorkflowLog
from matrixcommon.workflows.progress import RetryPolicy, with_entry
from matrixcommon.workflows.rows import FORWARD, WorkflowDrainRow, WorkflowRow, open_workflows
from matrixcommon.workflows.verbs import supersede
from matrixcommon.workflows.workflow import RETRY_INTERVAL_S, C, RewindToStep, Step, StepFunction, StepPending, Workflow

log = logging.getLogger(__name__)

RESUMED_BY_RELEASE, RESUMED_BY_USER = "it resumes in a release that does", "`:resume` retries it"

WAIT_FLOOR_WALL_S = 0.5
ATTEMPT_FLOOR_WALL_S = 60.0
"""The shortest time limit of an attempt, in wall time, so that a slow machine is not taken for a service that hangs."""


@dataclass
class _Run:
    """One workflow's task, and what wakes it: news of its target, or of a target that its step waits for."""

    target: str
    task: asyncio.Task[None] = field(init=False)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    on: frozenset[str] = frozenset()
    undoing: bool = False
    """Whether a step is being undone right now."""
    waiting: bool = False
    """Whether it waits for news or for its next attempt, which is a safe point."""
    state: str = ""
    """The workflow's state, as its task knows it."""
    parent: str = ""
    """The trace context of the request (W3C), if it was traced."""

    def wake_up(self) -> None:
        self.waiting = False
        self.wake.set()

    def stop(self) -> None:
        """The workflow was superseded. An undo under way is finished, since nobody would undo the rest of it."""
        if self.undoing:
            self.wake_up()
        else:
            self.task.cancel()


class WorkflowRunner(Generic[C, R]):
    """Runs each open workflow in its own task, one per target at a time."""

    def __init__(
        self,
        workflows: Mapping[str, Workflow[C]],
        host: Host[C, R],
        clock: Clock,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        self.workflows = workflows
        self._definitions = {verb: each.definition(host.payload) for verb, each in workflows.items()}
        self._host = host
        self._retry = retry
        self._store = host.store
        self._clock = clock
        self._log = WorkflowLog(host, clock)
        self._runs: dict[str, _Run] = {}
        self._stuck: set[str] = set()
        """The workflows that this release cannot resume, so that each is logged once per process."""
        self._stop_at = math.inf
        """When workflows stop at their next safe point because of a drain (s, emulated)."""
        self.wake: Callable[[], None] = lambda: None
        """Causes `resume` to be called soon: a workflow has ended, or come to rest, during a drain."""

    def open(self, session: Session, verb: str, target: ResourceRow, about: dict[str, str] | None = None) -> R:
        """Store a workflow in the caller's transaction, and end earlier ones over the target. `resume` starts it;
        during a drain, only once that has ended."""
        now = self._clock.now()
        self.overtake(session, target, verb)
        attempt = int(now * 1000)
        while session.get(self._host.row, name := _workflow_name(verb, target, attempt)) is not None:
            attempt += 1  # two with the same verb and target in one millisecond
        row: R = mapping_of(self._host.row).made(
            name=name,
            project=target.project,
            state="Waiting" if (drains := self._drains(session)) else "Running",
            verb=verb,
            target=target.name,
            steps=self.workflows[verb].names,
            parameters=about,
        )
        if drains:
            row.message = _waits_for("begins", drains)
        else:
            kept = {"traceparent": parent} if (parent := traceparent()) else {}
            row.trace = with_entry(None, row.steps[0], startedAt=now, **kept)
        row.definition = self._definitions[verb]
        self._host.opened(row, target)
        session.add(row)
        if drains:
            self._host.record_event(session, row, "WaitsForDrain", f"operation {name_of(name)} {row.message}", now)
        return row

    def under_way(self, session: Session, target: ResourceRow) -> list[R]:
        """The workflows of a target that have not ended."""
        return self._host.under_way(session, target)

    def overtake(self, session: Session, target: ResourceRow, by: str) -> None:
        """End the workflows under way over a target, in the caller's transaction; a newer one supersedes them."""
        for earlier in self.under_way(session, target):
            supersede(earlier, by, self._clock.now())

    def resume(self) -> int:
        """Start a task for every open workflow without one: new, or left by a crash. Returns how many run."""
        rows = self._store.records.query_unless_known_empty(self._host.row, self._open)
        drains = self._store.records.query_unless_known_empty(self._host.drains, self._drains)
        found = {row.name: row.target for row in rows}
        states = {row.name: row.state for row in rows}
        self._stuck &= {row.name for row in rows if row.stuck is not None}
        begun = {row.name for row in rows if row.trace}
        self._stop_at = min(((each.created_at or 0.0) + each.grace_s for each in drains), default=math.inf)
        startable = found.keys() if not drains else set() if self._resting else begun
        for name, run in list(self._runs.items()):
            if run.task.done():
                del self._runs[name]
                if not run.task.cancelled() and (wrong := run.task.exception()) is not None:
                    log.error("workflow task ended; it is started again", extra={"workflow": name}, exc_info=wrong)
            elif name not in found:
                run.stop()
            elif run.state not in ("", states[name]) or (self._resting and run.waiting):
                run.wake_up()  # cancelled through another replica, or due to rest
        idle = startable - self._runs.keys() - self._stuck
        for name in (each for each in found if each in idle):
            before = [each.task for at, each in self._runs.items() if each.target == found[name] and at not in found]
            run = self._runs[name] = _Run(found[name])
            run.task = asyncio.create_task(self._run_to_end(name, run, before), name=name)
        if drains:
            idle = found.keys() - self._runs.keys()
            self._record_drains(len(self._runs), begun & idle, found.keys() - begun)
        return len(self._runs)

    @property
    def _resting(self) -> bool:
        """Whether a drain's grace is over, so that no workflow goes past its safe point."""
        return self._clock.now() >= self._stop_at

    def _open(self, session: Session) -> list[R]:
        return open_workflows(session, self._host.row)

    def _drains(self, session: Session) -> list[WorkflowDrainRow]:
        return sorted(all_rows(session, self._host.drains), key=attrgetter("name"))

    def _record_drains(self, running: int, resting: Collection[str], waiting: Collection[str]) -> None:
        """Record how many workflows run, rest at a safe point and wait to begin, and with each of the latter two which
        drains it waits for."""
        with self._store.transaction() as session:
            drains = self._drains(session)
            for drain in drains:
                drain.state = "Draining" if running else "Drained"
                drain.running, drain.resting, drain.waiting = running, len(resting), len(waiting)
            texts = {name: _waits_for("begins", drains) for name in waiting}
            if self._resting:
                texts |= {name: _waits_for("stopped at a safe point; it continues", drains) for name in resting}
            for name, text in texts.items() if drains else ():
                row = session.get(self._host.row, name)
                if row is not None and row.state in FORWARD and row.stuck is None:
                    row.state, row.message = "Waiting", text

    async def reconcile(self) -> str:
        """Call `resume` and describe the result, for use as a reconciler."""
        return f"{self.resume()} workflows under way"

    @property
    def busy(self) -> bool:
        """Whether any workflow is running and not waiting for something."""
        return any(not (run.task.done() or run.waiting) for run in self._runs.values())

    def nudge(self, target: str | None = None) -> None:
        """This target, or any target, has changed: steps that wait for it try again."""
        for run in self._runs.values():
            if target is None or target == run.target or target in run.on:
                run.wake_up()

    async def run(self) -> None:
        """Run until cancelled, then stop all workflow tasks."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        tasks = [run.task for run in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._runs.clear()
        self._stuck.clear()

    async def _run_to_end(self, name: str, run: _Run, before: Collection[asyncio.Task[None]]) -> None:
        """Carry a workflow to its end, once the tasks of those it supersedes have ended."""
        if before:
            await asyncio.wait(before)
        RESOURCE.set(f"operations/{name}")
        if (at := self._log.at(name)) is None:
            return
        with self._store.reading() as session:
            row = session.get_one(self._host.row, name)
            workflow = self.workflows.get(row.verb)
            if workflow is None:
                self._mark_stuck(name, "UnknownVerb", f"this release knows no {row.verb}")
                return
            if workflow.step(row.reached) is None:
                self._mark_stuck(name, "UnknownStep", f"{row.verb} has no step {at[1]} in this release")
                return
            try:
                work = self._host.context(session, row)
            except UnreadablePayload as wrong:
                self._mark_stuck(name, "UnreadableSpec", f"this release cannot read its spec: {wrong}")
                return
            run.parent = request_trace(row)
            steps, stuck, definition = workflow.resumed_steps(row), row.stuck, self._definitions[row.verb]
        if not row.trace or row.state == "Waiting":
            self._log.begun(name)
        if stuck is not None:
            self._log.mark_known(name)
        redefined = row.state in FORWARD and definition != (row.definition or definition)
        if steps != row.steps or redefined:
            self._log.changed(name, steps, definition)
        try:
            await self._run(name, workflow, work, run)
        except StaleLeader as refused:
            log.warning("another replica carries it on", extra={"workflow": name, "why": refused.message})
        self.nudge(run.target)  # for workflows that wait for its end
        if self._stop_at < math.inf:
            self.wake()

    async def _run(self, name: str, workflow: Workflow[C], work: C, run: _Run) -> None:
        while not self._resting and (at := self._log.at(name)) is not None:
            run.state, reached = at
            step = workflow.step(reached)
            if step is None:
                self._mark_stuck(name, "UnknownStep", f"{workflow.verb} has no step {reached} in this release")
                return
            run.wake.clear()
            run.on = frozenset()
            try:
                if run.state == "Running":
                    with resumed_span(run.parent, f"step {reached}", StepPending, workflow=name):
                        await self._attempt(step, step.do, work)
                    self._log.done(name, reached)
                else:
                    with resumed_span(run.parent, f"undo {reached}", StepPending, workflow=name):
                        await self._undo(step, work, run)
                    self._log.undone(name, reached, workflow)
            except StepPending as waiting:
                self._log.note(name, workflow, step, str(waiting))
                run.on = waiting.on
                await self._pause(run, waiting.again_s)
            except RewindToStep as again:
                self._log.begun_again(name, reached, workflow, again)
            except StaleLeader:
                raise
            except MatrixError as refused:
                raise_if_cancelled(refused)
                if refused.retryable or run.state == "Undoing":
                    why = f"{refused.reason}: {refused.message}"
                    failed = self._log.note(name, workflow, step, why, failed=True)
                    await self._pause(run, self._retry.delay_s(failed))
                else:
                    self._log.refused(name, reached, refused)
            except Exception as wrong:
                raise_if_cancelled(wrong)
                log.exception("step failed", extra={"workflow": name, "step": reached})
                why = f"{type(wrong).__name__}: see the log"
                failed = self._log.note(name, workflow, step, why, failed=True)
                if run.state == "Running" and self._retry.exhausted(failed):
                    self._mark_stuck(name, "RetriesExhausted", f"{reached} failed {failed} times", RESUMED_BY_USER)
                    return
                await self._pause(run, self._retry.delay_s(failed))

    async def _attempt(self, step: Step[C], function: StepFunction[C], work: C) -> None:
        """Call a step once. Raises Unavailable if it takes longer than an attempt may."""
        most_s = self._clock.at_least_wall(step.attempt_s, ATTEMPT_FLOOR_WALL_S)
        try:
            async with asyncio.timeout(self._clock.wall_s(most_s)) as attempt:
                await function(work)
        except TimeoutError:
            if attempt.expired():
                raise Unavailable(f"no end within {most_s:g} s") from None
            raise

    async def _undo(self, step: Step[C], work: C, run: _Run) -> None:
        run.undoing = True
        try:
            if step.undo is not None:
                await self._attempt(step, step.undo, work)
        finally:
            run.undoing = False

    async def _pause(self, run: _Run, most_s: float = RETRY_INTERVAL_S) -> None:
        run.waiting = not run.wake.is_set()
        await pause(self._clock, lambda: self._clock.at_least_wall(most_s, WAIT_FLOOR_WALL_S), run.wake)
        run.waiting = False

    def _mark_stuck(self, name: str, reason: str, message: str, way_out: str = RESUMED_BY_RELEASE) -> None:
        """Mark a workflow as stuck. This process does not retry it unless it is resumed explicitly."""
        self._stuck.add(name)
        self._log.stuck(name, reason, f"{message}; {way_out}")


def _waits_for(what: str, drains: Iterable[WorkflowDrainRow]) -> str:
    """What a workflow does once those drains are gone."""
    return f"{what} once workflows are no longer drained by {', '.join(each.name for each in drains)}"


def request_trace(row: WorkflowRow) -> str:
    """The trace context of the request that started a workflow, kept with its first step."""
    return str((row.trace or {}).get(row.steps[0], {}).get("traceparent", ""))


def _workflow_name(verb: str, target: ResourceRow, attempt: int) -> str:
    return sibling_key(target.name, f"{verb}-{name_of(target.name)}-{attempt:x}")
