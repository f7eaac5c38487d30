"""Step and Workflow: long work as a list of do/undo pairs, and the deadlines it has.

A step is idempotent: it ensures something and returns when that is so. It raises StepPending while the world has yet
to move. `runner` carries workflows to their end; what a step is given (C) is the service's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError
from matrixcommon.workflows.rows import WorkflowRow

C = TypeVar("C")

WAIT_S = 15.0
"""How often a waiting step looks again even when nobody nudges (s, emulated)."""


class StepPending(Exception):
    """The world has yet to move; the message says what is waited for. `on`: other targets that it waits for;
    `again_s`: when to look again (s, emulated) where no news of it comes."""

    def __init__(self, message: str, on: Collection[str] = (), again_s: float = WAIT_S) -> None:
        super().__init__(message)
        self.on = frozenset(on)
        self.again_s = again_s


class StepAgain(Exception):
    """What an earlier step ensured is no longer all there is to ensure: the workflow continues from that step."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


StepFunction = Callable[[C], Awaitable[None]]


@dataclass(frozen=True)
class Step(Generic[C]):
    """Something to ensure and, where it needs it, how to take it back."""

    do: StepFunction[C]
    undo: StepFunction[C] | None = None
    deadline_s: float = 1800.0
    """After this long (emulated) its operation counts as stuck; it is still waited for."""
    attempt_s: float = 300.0
    """One call of it that takes longer (emulated) has failed, and is tried again as its retry policy says."""

    @property
    def name(self) -> str:
        return self.do.__name__


def nothing_besides(session: Session, target: Any, refused: MatrixError, now: float) -> None:
    """Where nothing is to be said of the target of a workflow that was rolled back."""


@dataclass(frozen=True)
class Workflow(Generic[C]):
    """A verb as a list of steps, each with a name of its own. `refused` runs in the transaction that ends a workflow
    that was rolled back, with the row of what it was over. It can be cancelled until it reaches the step
    `committed_at`; "": never.

    `retired`: by the names of steps that earlier releases had, the step that does their work now. A workflow that an
    earlier release left at one of them continues, or is undone, from there."""

    verb: str
    steps: tuple[Step[C], ...]
    refused: Callable[[Session, Any, MatrixError, float], None] = field(
        default=nothing_besides, repr=False, kw_only=True
    )
    committed_at: str = field(default="", kw_only=True)
    retired: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    deadline_s: float = field(default=7200.0, kw_only=True)
    """After this long (emulated) from its beginning to its end it counts as stuck, whatever its steps say."""

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def definition(self, payload: Mapping[str, Any] | None = None) -> str:
        """A hash of its steps, of what undoes them, of where it commits and of the schema of its payload."""
        steps = [(step.name, step.undo.__name__ if step.undo is not None else None) for step in self.steps]
        text = json.dumps([self.verb, steps, self.committed_at, payload], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def step(self, name: str) -> Step[C] | None:
        """The step of that name, or the one that does its work now; None where this release knows neither."""
        name = self.retired.get(name, name)
        return next((step for step in self.steps if step.name == name), None)

    def resumed(self, row: WorkflowRow) -> list[str]:
        """The names of a row's steps, what lies ahead as the workflow has it now; what was done stays as it was."""
        step = self.step(row.reached)
        if row.state != "Running" or step is None:
            return row.steps
        return [*row.steps[: row.step], *self.names[self.names.index(step.name) :]]

    def can_be_cancelled(self, row: WorkflowRow) -> bool:
        names = self.resumed(row)
        return self.committed_at in names and row.step < names.index(self.committed_at)
