"""Step and Workflow: long work as a list of do/undo pairs with deadlines.

A step is idempotent: it ensures a state and returns once that holds. It raises StepPending while it has to wait.
`runner` carries workflows to their end. The context that steps are given (C) is defined by the service.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.model.errors import MatrixError
from matrixcommon.workflows.rows import FORWARD, WorkflowRow

C = TypeVar("C")

RETRY_INTERVAL_S = 15.0
"""The interval at which a waiting step is tried again without a nudge (s, emulated)."""


class StepPending(Exception):
    """A step has to wait; the message says for what. `on`: other targets that it waits for. `again_s`: when to try
    again if no news arrives (s, emulated)."""

    def __init__(self, message: str, on: Collection[str] = (), again_s: float = RETRY_INTERVAL_S) -> None:
        super().__init__(message)
        self.on = frozenset(on)
        self.again_s = again_s


class RewindToStep(Exception):
    """An earlier step has more to ensure by now: the workflow continues from that step."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


StepFunction = Callable[[C], Awaitable[None]]


@dataclass(frozen=True)
class Step(Generic[C]):
    """A state to ensure and, where necessary, how to undo it."""

    do: StepFunction[C]
    undo: StepFunction[C] | None = None
    deadline_s: float = 1800.0
    """After this long (s, emulated) the operation counts as stuck; the step is still waited for."""
    attempt_s: float = 300.0
    """A single attempt that takes longer (s, emulated) has failed, and is retried by the retry policy."""

    @property
    def name(self) -> str:
        return self.do.__name__


def record_nothing(session: Session, target: Any, refused: MatrixError, now: float) -> None:
    """The default `refused`: nothing is recorded on the target of a workflow that was rolled back."""


@dataclass(frozen=True)
class Workflow(Generic[C]):
    """A verb as a list of steps with unique names. `refused` runs in the transaction that ends a rolled-back workflow,
    with the row of its target. A workflow can be cancelled until it reaches the step `committed_at`; "": never.

    `retired_steps` maps names of steps of earlier releases to the steps that do their work now. A workflow that an
    earlier release left at one of them continues, or is undone, from there."""

    verb: str
    steps: tuple[Step[C], ...]
    refused: Callable[[Session, Any, MatrixError, float], None] = field(
        default=record_nothing, repr=False, kw_only=True
    )
    committed_at: str = field(default="", kw_only=True)
    retired_steps: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    deadline_s: float = field(default=7200.0, kw_only=True)
    """A workflow under way for longer than this (s, emulated) counts as stuck, whatever its steps' deadlines."""

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]

    def definition(self, payload: Mapping[str, Any] | None = None) -> str:
        """A hash of its steps, their undo functions, the committing step and the schema of its payload."""
        steps = [(step.name, step.undo.__name__ if step.undo is not None else None) for step in self.steps]
        text = json.dumps([self.verb, steps, self.committed_at, payload], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def step(self, name: str) -> Step[C] | None:
        """The step of that name, or the one that does its work now; None if this release knows neither."""
        name = self.retired_steps.get(name, name)
        return next((step for step in self.steps if step.name == name), None)

    def resumed_steps(self, row: WorkflowRow) -> list[str]:
        """The names of a row's steps: finished ones as they were, those ahead as this release defines them."""
        step = self.step(row.reached)
        if row.state not in FORWARD or step is None:
            return row.steps
        return [*row.steps[: row.step], *self.names[self.names.index(step.name) :]]

    def can_be_cancelled(self, row: WorkflowRow) -> bool:
        names = self.resumed_steps(row)
        return self.committed_at in names and row.step < names.index(self.committed_at)
