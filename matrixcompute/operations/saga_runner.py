"""SagaRunner: carries sagas to their end, across a crash at any point.

A step that raises StepPending is asked again at the next nudge, one that raises StepAgain has the saga continue from an
earlier step. The names of a saga's steps and how many of them are
done are durable; after a crash the runner takes up every open saga at the step it had reached, by name, so a release
with other steps resumes what an earlier one began. What this release does not know is stuck: left as it is until one
does. A step that is refused for good rolls the saga back: what was done is undone, last first, and the refusal is kept
as the operation's error. A cancelled saga is rolled back likewise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from pydantic import ValidationError
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock, pause
from matrixcommon.model.errors import Cancelled, Conflict, MatrixError, StaleLeader, from_problem
from matrixcommon.model.resource_key import name_of, sibling
from matrixcommon.model.resource_model import is_true
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.step_progress import RetryPolicy, attempts, begun_again, noted
from matrixcompute.operations.saga import AS_LAST_ACTIVE, WAIT_S, Saga, Step, StepAgain, StepContext, StepPending
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import OPEN, ComputeStore, InstanceRow, SagaRow

log = logging.getLogger(__name__)

STUCK = "Stuck"
"""The condition of an operation that does not get on: this release cannot resume it, a step failed too often or takes
longer than its deadline."""

NEXT_RELEASE, TRY_AGAIN = "it resumes in a release that does", "`:resume` has it tried again"

WAIT_FLOOR_WALL_S = 0.5


@dataclass
class _Run:
    """One saga's task, and what wakes it: news of its own instance, or of one that its step waits for."""

    target: str
    task: asyncio.Task[None] = field(init=False)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    on: frozenset[str] = frozenset()
    undoing: bool = False
    """Whether a step is being undone right now."""
    state: str = ""
    """The saga's, as its task knows it."""

    def stop(self) -> None:
        """The saga was overtaken. An undo under way comes to its end: half undone, nobody would undo the rest."""
        if self.undoing:
            self.wake.set()
        else:
            self.task.cancel()


def _named(verb: str, instance: InstanceRow, attempt: int) -> str:
    return sibling(instance.name, f"{verb}-{name_of(instance.name)}-{attempt:x}")


class SagaRunner:
    """Runs every open saga in a task of its own, one per instance at a time."""

    def __init__(
        self,
        sagas: dict[str, Saga],
        store: ComputeStore,
        neighbours: ControlPlane,
        clock: Clock,
        policy: RecoveryPolicy,
        retry: RetryPolicy = RetryPolicy(),
        inference: Inference | None = None,
    ) -> None:
        self._sagas = sagas
        self._retry = retry
        self._store = store
        self._neighbours = neighbours
        self._clock = clock
        self._policy = policy
        self._inference = inference
        self._runs: dict[str, _Run] = {}
        self._stuck: set[str] = set()
        """What this release cannot resume, so that it is said once in each life of the process."""

    def open(self, session: Session, verb: str, instance: InstanceRow, about: dict[str, str] | None = None) -> SagaRow:
        """Write a saga down in the caller's transaction; `resume` starts it. Ends the ones before."""
        for earlier in self._store.open_sagas(session, instance.name):
            earlier.state = "Cancelled"
            earlier.finished_at = self._clock.now()
            earlier.message = f"overtaken by {verb}"
        attempt = int(self._clock.now() * 1000)
        while session.get(SagaRow, name := _named(verb, instance, attempt)) is not None:
            attempt += 1  # two of a kind in one millisecond
        as_it_is = verb in AS_LAST_ACTIVE and instance.applied is not None
        row = SagaRow(
            name=name,
            project=instance.project,
            state="Running",
            verb=verb,
            target=instance.name,
            steps=self._sagas[verb].names,
            spec_generation=instance.observed_generation if as_it_is else instance.generation,
            shape=instance.applied if as_it_is else instance.spec,
            parameters=about,
        )
        row.trace = noted(None, row.steps[0], startedAt=self._clock.now())
        session.add(row)
        instance.operation = row.name
        return row

    def cancel(self, row: SagaRow) -> None:
        """Roll a saga back in the caller's transaction; `nudge` informs its task. Asked again, it changes nothing.

        Raises Conflict where it cannot be cancelled (any more).
        """
        if (row.error or {}).get("reason") == Cancelled.__name__:
            return
        saga = self._sagas.get(row.verb)
        if row.state not in OPEN:
            raise Conflict(f"{row.verb} has ended: it is {row.state}; only what is under way can be cancelled")
        if row.state == "Undoing":
            raise Conflict(f"{row.verb} was refused and is being undone already")
        if saga is None or not saga.can_be_cancelled(row):
            can = ", ".join(
                f"{each.verb} before {each.committed_at}" for each in self._sagas.values() if each.committed_at
            )
            raise Conflict(
                f"{row.verb} at {row.reached} cannot be cancelled; these can: {can}. "
                "Delete the instance or give it another shape"
            )
        refused = Cancelled(f"{row.verb} was cancelled at {row.reached}")
        _roll_back(row, refused)

    def unstick(self, row: SagaRow) -> None:
        """Have a saga that gave up after too many failures tried again, in the caller's transaction. Raises Conflict
        where it is not stuck, or stuck in what only another release can resume."""
        stuck = is_true(row.conditions or [], STUCK)
        reported = next((each for each in row.conditions or [] if stuck and each["type"] == STUCK), None)
        if row.state not in OPEN or reported is None:
            raise Conflict(f"{row.verb} is {row.state} and not stuck; there is nothing to resume")
        if reported["reason"] not in ("RetriesExhausted", "StepDeadline"):
            raise Conflict(f"{row.verb} resumes in a release that knows it: {reported['message']}")
        row.trace = noted(row.trace, row.reached, attempts=0, startedAt=self._clock.now())
        row.set_condition(STUCK, False, "Resumed", "somebody had it tried again", self._clock.now())
        self._stuck.discard(row.name)

    def resume(self) -> int:
        """Start a task for every open saga that has none: new ones, and those a crash left. Returns how many run."""
        with self._store.reading() as session:
            rows = self._store.open_sagas(session)
            found = {row.name: row.target for row in rows}
            states = {row.name: row.state for row in rows}
            self._stuck &= {row.name for row in rows if is_true(row.conditions or [], STUCK)}
        for name, run in list(self._runs.items()):
            if run.task.done():
                del self._runs[name]
                if not run.task.cancelled() and (wrong := run.task.exception()) is not None:
                    log.error("saga task ended; it is started again", extra={"saga": name}, exc_info=wrong)
            elif name not in found:
                run.stop()
            elif run.state not in ("", states[name]):  # cancelled where another replica was asked
                run.wake.set()
        for name in found.keys() - self._runs.keys() - self._stuck:
            before = [run.task for run in self._runs.values() if run.target == found[name]]
            run = self._runs[name] = _Run(found[name])
            run.task = asyncio.create_task(self._carry(name, run, before), name=name)
        return len(self._runs)

    def nudge(self, instance: str | None = None) -> None:
        """Something of this instance, or of whatever instance, changed: a step that waits for it looks again."""
        for run in self._runs.values():
            if instance is None or instance == run.target or instance in run.on:
                run.wake.set()

    async def run(self) -> None:
        """For ever; at the end of it no saga is carried any further."""
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

    async def _carry(self, name: str, run: _Run, before: Collection[asyncio.Task[None]]) -> None:
        """Carry a saga to its end, once the tasks of those it has overtaken have ended."""
        if before:
            await asyncio.wait(before)
        with self._store.reading() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return
            saga, target, desired, about = self._sagas.get(row.verb), row.target, row.spec_generation, row.parameters
            if saga is None:
                self._say_stuck(name, "UnknownVerb", f"this release knows no {row.verb}")
                return
            if saga.step(row.reached) is None:
                self._say_stuck(name, "UnknownStep", f"{row.verb} has no step {row.reached} in this release")
                return
            try:
                # A saga from before sagas carried a shape brings the present spec.
                shape = InstanceRequest.model_validate(row.shape or self._store.instance(session, target).spec)
            except ValidationError as wrong:
                self._say_stuck(name, "UnreadableSpec", f"this release cannot read its spec: {wrong}")
                return
            steps, stuck = saga.resumed(row), is_true(row.conditions or [], STUCK)
        if stuck:
            self._say(name, False, "Resumed", "this release knows it again")
        if steps != row.steps:
            self._say_changed(name, steps)
        work = StepContext(
            name, target, shape, desired, self._neighbours, self._store, self._clock, self._policy,
            dict(about or {}), self._inference,
        )  # fmt: skip
        try:
            await self._run(name, saga, work, run)
        except StaleLeader as refused:
            log.warning("another replica carries it on", extra={"saga": name, "why": refused.message})

    async def _run(self, name: str, saga: Saga, work: StepContext, run: _Run) -> None:
        while (at := self._at(name)) is not None:
            run.state, reached = at
            step = saga.step(reached)
            if step is None:
                self._say_stuck(name, "UnknownStep", f"{saga.verb} has no step {reached} in this release")
                return
            run.wake.clear()
            run.on = frozenset()
            try:
                if run.state == "Running":
                    await step.do(work)
                    self._done(name)
                else:
                    await self._undo(step, work, run)
                    self._undone(name, saga)
            except StepPending as waiting:
                self._note(name, step, str(waiting))
                run.on = waiting.on
                await self._pause(run.wake, waiting.again_s)
            except StepAgain as again:
                self._begin_again(name, saga, again)
            except StaleLeader:
                raise
            except MatrixError as refused:
                if refused.retryable or run.state == "Undoing":
                    failed = self._note(name, step, f"{refused.reason}: {refused.message}", failed=True)
                    await self._pause(run.wake, self._retry.delay_s(failed))
                else:
                    self._begin_compensation(name, reached, refused)
            except Exception as wrong:
                log.exception("saga step failed", extra={"saga": name, "step": reached})
                failed = self._note(name, step, f"{type(wrong).__name__}: see the log", failed=True)
                if run.state == "Running" and self._retry.exhausted(failed):
                    self._say_stuck(name, "RetriesExhausted", f"{reached} failed {failed} times", TRY_AGAIN)
                    return
                await self._pause(run.wake, self._retry.delay_s(failed))

    async def _undo(self, step: Step, work: StepContext, run: _Run) -> None:
        run.undoing = True
        try:
            if step.undo is not None:
                await step.undo(work)
        finally:
            run.undoing = False

    async def _pause(self, nudge: asyncio.Event, most_s: float = WAIT_S) -> None:
        await pause(self._clock, self._clock.at_least_wall(most_s, WAIT_FLOOR_WALL_S), nudge)

    # -- the log -------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> tuple[str, str] | None:
        """The saga's state and the step it has reached; None when it has ended (or was overtaken)."""
        with self._store.reading() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return None
            return row.state, row.reached

    def _note(self, name: str, step: Step, message: str, failed: bool = False) -> int:
        """Keep the last word of a step, and whether it was a failure; returns how many there were of those.

        One that has been at it for longer than its deadline is stuck, and is still waited for.
        """
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return 0
            count = attempts(row.trace, step.name) + failed
            row.message = f"{message}; trying again" if failed else message
            if failed or (row.trace or {}).get(step.name, {}).get("message") != message:
                row.trace = noted(row.trace, step.name, message=message, attempts=count)
            started = (row.trace or {}).get(step.name, {}).get("startedAt", now)
            late = now - started > step.deadline_s and not is_true(row.conditions or [], STUCK)
        if late:
            self._say(name, True, "StepDeadline", f"{step.name} for longer than {step.deadline_s:g} s: {message}")
        return count

    def _done(self, name: str) -> None:
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state != "Running":
                return  # overtaken, or cancelled meanwhile: then this step is undone first
            now = self._clock.now()
            row.trace = noted(row.trace, row.reached, finishedAt=now, message="")
            row.step += 1
            row.message = ""
            if is_true(row.conditions or [], STUCK):
                row.set_condition(STUCK, False, "Resumed", "the step it was stuck in is done", now)
            if row.step == len(row.steps):
                row.state, row.finished_at = "Done", now
            else:
                row.trace = noted(row.trace, row.reached, startedAt=now)

    def _begin_again(self, name: str, saga: Saga, again: StepAgain) -> None:
        """Continue from a step that was done before; what was done since then is asked for again."""
        with self._store.transaction() as session:
            row, step = session.get(SagaRow, name), saga.step(again.step)
            if row is not None and step is not None and row.state == "Running":
                row.step = row.steps.index(step.name)
                row.trace = begun_again(row.trace, row.steps[row.step :], self._clock.now())
                row.message = str(again)

    def _undone(self, name: str, saga: Saga) -> None:
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return
            row.trace = noted(row.trace, row.reached, undoneAt=self._clock.now())
            if row.step > 0:
                row.step -= 1
                return
            refused = from_problem(row.error or {}, 500)
            row.state = "Cancelled" if isinstance(refused, Cancelled) else "Failed"
            row.finished_at, row.message = self._clock.now(), f"{refused.reason}: {refused.message}"
            instance = session.get(InstanceRow, row.target)
            if instance is not None:
                self._store.record_event(
                    session, row.target, refused.reason, refused.message, self._clock.now(), "Warning"
                )
                saga.refused(session, instance, refused, self._clock.now())

    def _begin_compensation(self, name: str, step: str, refused: MatrixError) -> None:
        log.warning("saga refused", extra={"saga": name, "step": step, "why": refused.message})
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is not None and row.state == "Running":
                row.trace = noted(row.trace, step, refused=True, message=f"{refused.reason}: {refused.message}")
                _roll_back(row, refused)

    def _say_stuck(self, name: str, reason: str, message: str, way_out: str = NEXT_RELEASE) -> None:
        """It stays as it is, and everything else continues."""
        log.error("saga is stuck", extra={"saga": name, "reason": reason, "why": message})
        self._stuck.add(name)
        self._say(name, True, reason, f"stuck: {message}; {way_out}")

    def _say(self, name: str, stuck: bool, reason: str, message: str) -> None:
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return
            if is_true(row.conditions or [], STUCK) != stuck:
                text = f"operation {name_of(name)}: {message}"
                self._store.record_event(session, row.target, reason, text, now, "Warning" if stuck else "Normal")
            row.message = message if stuck else ""
            row.set_condition(STUCK, stuck, reason, message, now)

    def _say_changed(self, name: str, steps: list[str]) -> None:
        """It was begun by a release with other steps, and continues with those of this one."""
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is None or row.state not in OPEN:
                return
            now, before = self._clock.now(), row.steps
            changes = [f"without {each}" for each in before if each not in steps]
            changes += [f"with {each}" for each in steps if each not in before]
            message = (
                f"operation {name_of(name)} of another release continues {', '.join(changes) or 'in another order'}"
            )
            row.steps = steps
            row.trace = noted(row.trace, row.reached, startedAt=now)
            self._store.record_event(session, row.target, "WorkflowChanged", message, now)


def _roll_back(row: SagaRow, refused: MatrixError) -> None:
    row.state, row.error, row.message = "Undoing", refused.problem(), f"{refused.reason}: {refused.message}"
