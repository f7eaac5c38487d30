"""What the runner's tests run: workflows of steps that only count, on a database that outlives each process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.errors import InsufficientCapacity, MatrixError
from matrixcommon.persistence.database_session import Database
from matrixcommon.workflows.rows import OPEN
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcommon.workflows.workflow import Step, StepFunction, StepPending, Workflow
from matrixcompute.contract import InstanceRequest
from matrixcompute.operations.context import InstanceHost, StepContext
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import Base, ComputeStore, InstanceRow, OperationRow
from services.chassis.database import DatabaseEngine
from tests.clocks import LoopClock

DO, UNDO = "do", "undo"
Call = tuple[str, int]
"""A step done or undone, by its place in the workflow."""


class ProcessKilled(BaseException):
    """The process ends here."""


class RecordedWorkflow:
    """What the steps act on. It outlives every process: which effects there are, and every call that reached it."""

    def __init__(
        self, steps: int, undoable: set[int] | None = None, refused: int | None = None, committed_at: str = ""
    ) -> None:
        """`refused`: the step that is refused for good, however often it is asked."""
        self.refused = refused
        self.effects: set[int] = set()
        self.calls: list[Call] = []
        self.raises: dict[Call, list[Exception]] = defaultdict(list)
        """What a call answers with before it succeeds, in this order."""
        undoable = set(range(steps)) if undoable is None else undoable
        self.workflow = Workflow(
            "test",
            tuple(Step(self._step(DO, at), self._step(UNDO, at) if at in undoable else None) for at in range(steps)),
            refused=refused_to_pending,
            committed_at=committed_at,
        )
        self.undoable = undoable

    def _step(self, kind: str, at: int) -> StepFunction:
        async def step(context: StepContext) -> None:
            self.calls.append((kind, at))
            await asyncio.sleep(1)
            if self.raises[kind, at]:
                raise self.raises[kind, at].pop(0)
            if (kind, at) == (DO, self.refused):
                raise InsufficientCapacity("no room")
            (self.effects.add if kind == DO else self.effects.discard)(at)

        step.__name__ = f"{kind}_{at}"
        return step

    def distinct_calls(self) -> list[Call]:
        """The calls without those that only say again what the one before said."""
        return [call for at, call in enumerate(self.calls) if at == 0 or call != self.calls[at - 1]]


def refused_to_pending(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    instance.move("Pending")


class KillingStore(ComputeStore):
    """Ends the process at its `at`-th transaction, right before or right after that is committed."""

    at: int | None = None
    before: bool = False
    transactions = 0
    killed = False

    @contextlib.contextmanager
    def transaction(self, dry: bool = False) -> Iterator[Any]:
        self.transactions += 1
        self.killed |= (kills := self.transactions == self.at)
        with super().transaction(dry) as session:
            yield session
            if kills and self.before:
                raise ProcessKilled
        if kills:
            raise ProcessKilled


class RunnerProcess:
    """One life of the runner on a database that outlives it."""

    def __init__(self, folder: Path, *workflows: Workflow) -> None:
        self.database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        Base.metadata.create_all(self.database.engine)
        self.clock = LoopClock()
        self.store = KillingStore(Database(self.database.sessions, Base.metadata, self.clock))
        # No step of these workflows asks a neighbour anything.
        host = InstanceHost(self.store, None, self.clock, RecoveryPolicy())  # type: ignore[arg-type]
        self.runner = WorkflowRunner({each.verb: each for each in workflows}, host, self.clock)

    def open(self, verb: str = "test", instance: str = "one") -> str:
        """Write a workflow down for an instance, which is made where there is none."""
        with self.store.transaction() as session:
            row = session.get(InstanceRow, instance)
            if row is None:
                request = InstanceRequest(nodes=1)
                row = InstanceRow(
                    name=instance, project="default", labels={}, spec=request.wire(), state="Provisioning",
                    generation=1, conditions=[], members=[], slices=[],
                )  # fmt: skip
                session.add(row)
            return self.runner.open(session, verb, row).name

    def workflow(self, name: str) -> OperationRow:
        with self.store.reading() as session:
            row = session.get(OperationRow, name)
            assert row is not None
            session.expunge(row)
            return row

    async def wait_until_ended(self, name: str, within_s: float = 3600) -> OperationRow:
        """The workflow once it has ended; every task of the runner that was killed raises here."""
        started = self.clock.now()
        while self.workflow(name).state in OPEN:
            for task in [run.task for run in self.runner._runs.values()]:
                if task.done() and not task.cancelled():
                    task.result()
            assert self.clock.now() - started < within_s, f"{name} never ends"
            await asyncio.sleep(0.5)
        return self.workflow(name)

    async def stop(self) -> None:
        await self.runner.stop()
        self.database.close()


@contextlib.asynccontextmanager
async def runner_process(folder: Path, *workflows: Workflow) -> AsyncIterator[RunnerProcess]:
    process = RunnerProcess(folder, *workflows)
    try:
        yield process
    finally:
        await process.stop()


async def open_and_wait_at(process: RunnerProcess, recorded: RecordedWorkflow, call: Call) -> str:
    """A workflow that has come as far as this call, which waits. What was called until then is forgotten."""
    recorded.raises[call] = [StepPending("waits")]
    name = process.open()
    process.runner.resume()
    while call not in recorded.calls or process.workflow(name).message != "waits":
        await asyncio.sleep(0.5)
    recorded.calls.clear()
    return name
