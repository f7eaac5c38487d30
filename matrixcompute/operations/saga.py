"""Step and Saga: long work as a list of do/undo pairs, and what each step is given.

A step is idempotent: it ensures something and returns when that is so. It raises StepPending while the world has yet
to move. `saga_runner` carries sagas to their end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.step_progress import noted
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.recovery_policies import policies_by_target, policy_of
from matrixcompute.store.store import ComputeStore, InstanceRow, SagaRow

REPAIR, MOVE, YIELD_CAPACITY, RELOCATE = "replace-node", "move-instance", "yield-capacity", "relocate-member"
RESTORE = "restore-members"
AS_LAST_ACTIVE = (REPAIR, RELOCATE, RESTORE)
"""Verbs that bring back what last was active, whatever has been requested since."""
WAIT_S = 15.0
"""How often a waiting step looks again even when nobody nudges (s, emulated)."""

STOP, START, RESTART = "stop-instance", "start-instance", "restart-instance"


class StepPending(Exception):
    """The world has yet to move; the message says what is waited for. `on`: other instances that it waits for;
    `again_s`: when to look again (s, emulated) where no news of it comes."""

    def __init__(self, message: str, on: Collection[str] = (), again_s: float = WAIT_S) -> None:
        super().__init__(message)
        self.on = frozenset(on)
        self.again_s = again_s


class StepAgain(Exception):
    """What an earlier step ensured is no longer all there is to ensure: the saga continues from that step."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


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
    inference: Inference | None = None
    """What serves on instances; None where no CloudMatrix-Infer is configured."""

    def applied(self) -> InstanceRequest | None:
        """The shape that last was active; None where none ever was."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).last_active

    def newest(self) -> int:
        """The generation that is requested now."""
        with self.store.reading() as session:
            return self.store.instance(session, self.instance).generation

    def leaving(self) -> list[str]:
        """The members that the instance's present spec names as those to go."""
        with self.store.reading() as session:
            return list(self.store.instance(session, self.instance).leaving or [])

    def since(self, step: str) -> float:
        """When that step of this saga was begun (s); now where it was not."""
        return float(self._traced(step).get("startedAt", self.clock.now()))

    def failures(self, step: str) -> int:
        """How often that step of this saga has failed."""
        return int(self._traced(step).get("attempts", 0))

    def _traced(self, step: str) -> dict[str, Any]:
        with self.store.reading() as session:
            row = session.get(SagaRow, self.saga)
            return {} if row is None else (row.trace or {}).get(step, {})

    def informed(self) -> set[str]:
        """Of a repair, the members that were fenced and told before anything is done about them."""
        return {*self._traced("tell_workload").get("informed", ())}

    def note_informed(self, nodes: Collection[str]) -> None:
        """Keep that these were."""
        if {*nodes} <= (before := self.informed()):
            return
        with self.store.transaction() as session:
            if (row := session.get(SagaRow, self.saga)) is not None:
                row.trace = noted(row.trace, "tell_workload", informed=sorted({*nodes} | before))

    def recovery_policy(self) -> RecoveryPolicy:
        """What holds for its instance now."""
        with self.store.reading() as session:
            return policy_of(self.instance, policies_by_target(session), self.policy)

    def rungs(self) -> list[RungTried] | None:
        """Of a repair, what was begun for each member, in its order; None of anything else."""
        with self.store.reading() as session:
            row = session.get(SagaRow, self.saga)
        return None if row is None or row.verb != REPAIR else row.rungs_tried

    def note_rung(self, tried: RungTried) -> None:
        """Keep that a rung was begun, and say so."""
        with self.store.transaction() as session:
            row = session.get(SagaRow, self.saga)
            if row is not None:
                row.rungs = [*(row.rungs or []), tried.wire()]
            message = f"{tried.node}: {tried.rung}, since {tried.why}"
            self.store.record_event(session, self.instance, "RepairBegun", message, tried.at, "Warning")

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
    deadline_s: float = 1800.0
    """After this long (emulated) its operation counts as stuck; it is still waited for."""

    @property
    def name(self) -> str:
        return self.do.__name__


@dataclass(frozen=True)
class Saga:
    """A verb as a list of steps, each with a name of its own. `refused` runs in the transaction that ends a saga that
    was rolled back. It can be cancelled until it reaches the step `committed_at`; "": never.

    `retired`: by the names of steps that earlier releases had, the step that does their work now. A saga that an
    earlier release left at one of them continues, or is undone, from there."""

    verb: str
    steps: tuple[Step, ...]
    refused: Callable[[Session, InstanceRow, MatrixError, float], None] = field(repr=False, kw_only=True)
    committed_at: str = field(default="", kw_only=True)
    retired: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def step(self, name: str) -> Step | None:
        """The step of that name, or the one that does its work now; None where this release knows neither."""
        name = self.retired.get(name, name)
        return next((step for step in self.steps if step.name == name), None)

    def resumed(self, row: SagaRow) -> list[str]:
        """The names of a row's steps, what lies ahead of it as the saga has it now; what was done stays as it was."""
        step = self.step(row.reached)
        if row.state != "Running" or step is None:
            return row.steps
        return [*row.steps[: row.step], *self.names[self.names.index(step.name) :]]

    def can_be_cancelled(self, row: SagaRow) -> bool:
        names = self.resumed(row)
        return self.committed_at in names and row.step < names.index(self.committed_at)
