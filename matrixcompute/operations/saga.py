"""Step, Saga, SagaRunner: long work as a list of do/undo pairs that survives a crash at any point.

A step is idempotent: it ensures something and returns when that is so. It raises Waiting while the world has yet to
move, and is then asked again at the next nudge. How many steps are done is durable; after a crash the runner takes up
every open saga at the step it had reached. A step that is refused for good rolls the saga back: what was done is
undone, last first, and the refusal is kept as the operation's error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError, from_problem
from matrixcommon.model.resource_key import name_of, sibling
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.contract import InstanceRequest
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import OPEN, ComputeStore, InstanceRow, SagaRow

log = logging.getLogger(__name__)

REPAIR, MOVE, YIELD_CAPACITY, RELOCATE = "replace-node", "move-instance", "yield-capacity", "relocate-member"

WAIT_S, WAIT_FLOOR_WALL_S = 15.0, 0.5
"""How often a waiting step looks again even when nobody nudges."""


class StepPending(Exception):
    """The world has yet to move; the message says what is waited for. `on`: other instances that it waits for."""

    def __init__(self, message: str, on: Collection[str] = ()) -> None:
        super().__init__(message)
        self.on = frozenset(on)


@dataclass
class _Waiter:
    """What wakes one saga's task: news of its own instance, or of one that its step waits for."""

    target: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    on: frozenset[str] = frozenset()


@dataclass
class StepContext:
    """What a step is given: whose saga it is, the shape and generation it carries, and the ports."""

    saga: str
    instance: str
    shape: InstanceRequest
    spec_generation: int
    neighbours: ControlPlane
    store: ComputeStore
    clock: Clock
    policy: RecoveryPolicy
    parameters: dict[str, str] = field(default_factory=dict)

    def applied(self) -> InstanceRequest | None:
        """The shape that last was active; None where none ever was."""
        with self.store.reading() as session:
            applied = self.store.instance(session, self.instance).applied
        return InstanceRequest.model_validate(applied) if applied else None

    def newest(self) -> int:
        """The generation that is requested now."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).generation

    def leaving(self) -> list[str]:
        """The members that the instance's present spec names as those to go."""
        with self.store.reading() as session:
            return list(self.store.instance(session, self.instance).leaving or [])

    def record_event(self, reason: str, message: str, warning: bool = False) -> None:
        with self.store.transaction() as session:
            self.store.record_event(
                session, self.instance, reason, message, self.clock.now(), "Warning" if warning else "Normal"
            )


StepFunction = Callable[[StepContext], Awaitable[None]]


@dataclass(frozen=True)
class Step:
    """Something to ensure and, where it needs it, how to take it back."""

    do: StepFunction
    undo: StepFunction | None = None

    @property
    def name(self) -> str:
        return self.do.__name__


@dataclass(frozen=True)
class Saga:
    """A verb as a list of steps. `refused` runs in the transaction that ends a saga that was rolled back."""

    verb: str
    steps: tuple[Step, ...]
    refused: Callable[[Session, InstanceRow, MatrixError, float], None] = field(repr=False, kw_only=True)


class SagaRunner:
    """Runs every open saga in a task of its own, one per instance at a time."""

    def __init__(
        self,
        sagas: dict[str, Saga],
        store: ComputeStore,
        neighbours: ControlPlane,
        clock: Clock,
        policy: RecoveryPolicy,
    ) -> None:
        self._sagas = sagas
        self._store = store
        self._neighbours = neighbours
        self._clock = clock
        self._policy = policy
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiters: dict[str, _Waiter] = {}

    def open(self, session: Session, verb: str, instance: InstanceRow, about: dict[str, str] | None = None) -> SagaRow:
        """Write a saga down in the caller's transaction; `resume` starts it. Ends the ones before."""
        for earlier in self._store.open_sagas(session, instance.name):
            earlier.status = "Cancelled"
            earlier.finished_at = self._clock.now()
            earlier.message = f"overtaken by {verb}"
        attempt = int(self._clock.now() * 1000)
        as_it_is = verb in (REPAIR, RELOCATE) and instance.applied is not None
        row = SagaRow(
            name=sibling(instance.name, f"{verb}-{name_of(instance.name)}-{attempt:x}"),
            project=instance.project,
            state="Running",
            verb=verb,
            target=instance.name,
            status="Running",
            steps=[step.name for step in self._sagas[verb].steps],
            # A repair brings back what last was active, whatever has been requested since; who moves keeps it.
            spec_generation=instance.observed_generation if as_it_is else instance.generation,
            shape=instance.applied if as_it_is else instance.spec,
            parameters=about,
        )
        session.add(row)
        instance.operation = row.name
        return row

    def resume(self) -> int:
        """Start a task for every open saga that has none: new ones, and those a crash left. Returns how many run."""
        with self._store.reading() as session:
            found = {row.name for row in self._store.open_sagas(session)}
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
            elif name not in found:
                task.cancel()
        for name in found - set(self._tasks):
            self._tasks[name] = asyncio.create_task(self._carry(name), name=name)
        return len(self._tasks)

    def nudge(self, instance: str | None = None) -> None:
        """Something of this instance, or of whatever instance, changed: a step that waits for it looks again."""
        for waiter in self._waiters.values():
            if instance is None or instance == waiter.target or instance in waiter.on:
                waiter.wake.set()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _carry(self, name: str) -> None:
        with self._store.reading() as session:
            row = session.get(SagaRow, name)
            assert row is not None
            saga, target, desired = self._sagas[row.verb], row.target, row.spec_generation
            # A saga from before sagas carried a shape brings the present spec.
            about = dict(row.parameters or {})
            shape = InstanceRequest.model_validate(row.shape or self._store.instance(session, target).spec)
        work = StepContext(
            name, target, shape, desired, self._neighbours, self._store, self._clock, self._policy, about
        )
        waiter = self._waiters[name] = _Waiter(target)
        try:
            await self._run(name, saga, work, waiter)
        finally:
            if self._waiters.get(name) is waiter:
                del self._waiters[name]

    async def _run(self, name: str, saga: Saga, work: StepContext, waiter: _Waiter) -> None:
        while (at := self._at(name)) is not None:
            status, step = at
            waiter.wake.clear()
            waiter.on = frozenset()
            try:
                if status == "Running":
                    await saga.steps[step].do(work)
                    self._done(name, saga, step)
                else:
                    undo = saga.steps[step].undo
                    if undo is not None:
                        await undo(work)
                    self._undone(name, saga, step)
            except StepPending as waiting:
                self._note(name, str(waiting))
                waiter.on = waiting.on
                await self._pause(waiter.wake)
            except MatrixError as refused:
                if refused.retryable or status == "Undoing":
                    self._note(name, f"{refused.reason}: {refused.message}; trying again")
                    await self._pause(waiter.wake)
                else:
                    self._begin_compensation(name, saga, step, refused)
            except Exception as wrong:
                log.exception("saga step failed", extra={"saga": name, "step": saga.steps[step].name})
                self._note(name, f"{type(wrong).__name__}: see the log; trying again")
                await self._pause(waiter.wake)

    async def _pause(self, nudge: asyncio.Event) -> None:
        sleep = asyncio.ensure_future(self._clock.sleep(self._clock.at_least_wall(WAIT_S, WAIT_FLOOR_WALL_S)))
        wake = asyncio.ensure_future(nudge.wait())
        try:
            await asyncio.wait({sleep, wake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            wake.cancel()

    # -- the log -------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> tuple[str, int] | None:
        """Where the saga stands; None when it has ended (or was overtaken)."""
        with self._store.reading() as session:
            row = session.get(SagaRow, name)
            if row is None or row.status not in OPEN:
                return None
            return row.status, row.step

    def _note(self, name: str, message: str) -> None:
        self._update(name, message=message)

    def _done(self, name: str, saga: Saga, step: int) -> None:
        if step + 1 < len(saga.steps):
            self._update(name, step=step + 1, message="")
        else:
            self._update(name, step=step + 1, message="", status="Done", state="Done", finished_at=self._clock.now())

    def _undone(self, name: str, saga: Saga, step: int) -> None:
        if step > 0:
            self._update(name, step=step - 1)
            return
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            assert row is not None
            row.status = row.state = "Failed"
            row.finished_at = self._clock.now()
            instance = session.get(InstanceRow, row.target)
            if instance is not None:
                refused = from_problem(row.error or {}, 500)
                self._store.record_event(
                    session, row.target, refused.reason, refused.message, self._clock.now(), "Warning"
                )
                saga.refused(session, instance, refused, self._clock.now())

    def _begin_compensation(self, name: str, saga: Saga, step: int, refused: MatrixError) -> None:
        log.warning("saga refused", extra={"saga": name, "step": saga.steps[step].name, "why": refused.message})
        self._update(
            name,
            status="Undoing",
            state="Undoing",
            error=refused.problem(),
            message=f"{refused.reason}: {refused.message}",
        )

    def _update(self, name: str, **columns: Any) -> None:
        with self._store.transaction() as session:
            row = session.get(SagaRow, name)
            if row is not None and row.status in OPEN:
                for column, value in columns.items():
                    setattr(row, column, value)
