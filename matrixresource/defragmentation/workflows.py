"""The workflows of MatrixResource: a defragmentation, and the move of one member that MatrixResource makes itself.

Their steps derive their progress from where allocations are placed (`DefragmentationController`); the engine records
that they are in progress, retries, and shows them. A cancelled defragmentation stops after the current move: completed
moves stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Cancelled, Conflict, MatrixError, StalePlan
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import pluralized
from matrixcommon.persistence.searches import run_with_searches
from matrixcommon.workflows.host import Host
from matrixcommon.workflows.rows import open_workflows
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcommon.workflows.workflow import Step, StepPending, Workflow
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.defragmentations import RelocateRequest
from matrixresource.defragmentation.controller import RECONCILE_INTERVAL_S, DefragmentationController
from matrixresource.defragmentation.plan_lifecycle import PlanLifecycle
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.defragmentations import DEFRAGMENTATION_STATES, IN_PROGRESS, DefragmentationRow
from matrixresource.store.operations import OperationRow, WorkflowDrains
from matrixresource.store.store import ResourceStore

T = TypeVar("T")


@dataclass(frozen=True)
class DefragmentationContext:
    """What a step works on: the plan or the allocation, and for a move its source and target."""

    target: str
    parameters: dict[str, str]
    store: ResourceStore
    allocator: Allocator
    plans: PlanLifecycle
    controller: DefragmentationController

    async def run_verb(self, verb: Callable[[], T]) -> T:
        """Run a verb, with its long searches outside the event loop."""

        async def search_verb() -> T:
            return verb()

        return await run_with_searches(search_verb, self.store.records.executor)

    async def reconcile(self, stopping: bool = False) -> None:
        """Check the plan. Raises StepPending while something is waited for."""
        waiting = await self.run_verb(lambda: self.controller.reconcile(self.target, stopping))
        if waiting is not None:
            raise waiting

    def target_role(self) -> str | None:
        """The role for which the target node is held for the member; None if it is not held."""
        with self.store.reading() as session:
            node = self.store.node(session, NodeName(self.parameters["to"]))
            return node.role if node.holder == self.target else None


# ---- a defragmentation ----------------------------------------------------------------------------------------------


async def keep_room(work: DefragmentationContext) -> None:
    """Keep new work off the nodes that the plan needs."""
    with work.store.transaction() as session:
        if (row := session.get(DefragmentationRow, work.target)) is not None:
            work.plans.sync_reserved_nodes(session, row)


async def make_room(work: DefragmentationContext) -> None:
    """Wait until every move has been made and the room is clean; plan again if something got in the way."""
    await work.reconcile()


async def stop_moving(work: DefragmentationContext) -> None:
    """Wait until no move is in progress and no allocation that must stay together is split."""
    await work.reconcile(stopping=True)


async def mark_done(work: DefragmentationContext) -> None:
    """Release the room, free for whoever comes first."""
    await work.reconcile()
    with work.store.transaction() as session:
        row = session.get(DefragmentationRow, work.target)
        if row is not None and row.state in IN_PROGRESS:
            message = f"{pluralized(len(row.room), 'free node')}: {', '.join(row.room)}"
            work.plans.end(session, row, "Done", "RoomMade", message)


# ---- the move of one member -----------------------------------------------------------------------------------------


async def take_successor(work: DefragmentationContext) -> None:
    """Take the named node for the member, and deploy it beside the member."""
    request = RelocateRequest.from_stored(work.parameters)
    await work.run_verb(lambda: work.allocator.relocate(work.target, request))


async def give_up_successor(work: DefragmentationContext) -> None:
    """Leave the member where it is."""
    if work.target_role() == "successor":
        await work.run_verb(lambda: work.allocator.abort_move(work.target))


async def await_successor(work: DefragmentationContext) -> None:
    """Wait until the successor is ready; fail if it never will be."""
    with work.store.reading() as session:
        node = work.store.node(session, NodeName(work.parameters["to"]))
        assigned, fault, ready = node.holder == work.target, node.fault(), node.ready
    if not assigned:
        raise Conflict(f"{work.parameters['to']} is no longer held for {work.target}")
    if fault is not None:
        raise Conflict(f"{work.parameters['to']} is {fault}")
    if not ready:
        raise StepPending(f"{work.parameters['to']} is being deployed", again_s=RECONCILE_INTERVAL_S)


async def cut_over(work: DefragmentationContext) -> None:
    """Make the successor the member, and release the node that it replaces."""
    if work.target_role() == "successor":
        with work.store.reading() as session:
            spec = work.store.allocation(session, work.target).spec()
        await work.run_verb(lambda: work.allocator.cut_over(work.target, spec))


MOVE_MEMBER: Workflow[DefragmentationContext] = Workflow(
    "move-member",
    (Step(take_successor, undo=give_up_successor), Step(await_successor), Step(cut_over)),
    committed_at="cut_over",
)


RUNNING_DEADLINE_S = DEFRAGMENTATION_STATES.states["Running"].deadline_s or 0.0

DEFRAGMENTATION: Workflow[DefragmentationContext] = Workflow(
    "defragment",
    (Step(keep_room), Step(make_room, undo=stop_moving, deadline_s=RUNNING_DEADLINE_S), Step(mark_done)),
    committed_at="mark_done",
    deadline_s=RUNNING_DEADLINE_S + 7200.0,
)
WORKFLOWS: dict[str, Workflow[DefragmentationContext]] = {each.verb: each for each in (DEFRAGMENTATION, MOVE_MEMBER)}


class DefragmentationHost(Host[DefragmentationContext, OperationRow]):
    """Workflows over defragmentations and allocations."""

    row, drains = OperationRow, WorkflowDrains

    def __init__(self, store: ResourceStore, allocator: Allocator, clock: Clock) -> None:
        super().__init__(store)
        self._store = store
        self._allocator = allocator
        self._plans = PlanLifecycle(store, clock)
        self._clock = clock

    def runner(self) -> WorkflowRunner[DefragmentationContext, OperationRow]:
        """The runner of these workflows."""
        runner = WorkflowRunner(WORKFLOWS, self, self._clock)

        def open_move(session: Session, allocation: AllocationRow, parameters: dict[str, str]) -> None:
            runner.open(session, MOVE_MEMBER.verb, allocation, parameters)

        def wake_runner() -> None:
            runner.wake()

        self._controller = DefragmentationController(self._store, self._allocator, self._clock, open_move, wake_runner)
        return runner

    def context(self, session: Session, row: OperationRow) -> DefragmentationContext:
        parameters = dict(row.parameters or {})
        return DefragmentationContext(
            row.target, parameters, self._store, self._allocator, self._plans, self._controller
        )

    def target(self, session: Session, row: OperationRow) -> DefragmentationRow | AllocationRow | None:
        if row.verb == MOVE_MEMBER.verb:
            return session.get(AllocationRow, row.target)
        return session.get(DefragmentationRow, row.target)

    def under_way(self, session: Session, target: Any) -> list[OperationRow]:
        """A plan and an allocation may have the same name."""
        moves = isinstance(target, AllocationRow)
        found = open_workflows(session, OperationRow, target.name)
        return [row for row in found if (row.verb == MOVE_MEMBER.verb) == moves]

    def on_rolled_back(
        self,
        session: Session,
        workflow: Workflow[DefragmentationContext],
        row: OperationRow,
        refused: MatrixError,
        now: float,
    ) -> None:
        """Release the nodes that the plan kept; completed moves stay."""
        plan = self.target(session, row)
        if not isinstance(plan, DefragmentationRow) or plan.state not in IN_PROGRESS:
            return
        state, message = "Stale" if isinstance(refused, StalePlan) else "Failed", refused.message
        if isinstance(refused, Cancelled):
            moved = sum(not step.open for step in plan.steps())
            state, message = "Cancelled", f"stopped after {moved} of {len(plan.moves)} moves"
        if (plan.state, state) == ("Approved", "Failed"):
            plan.move("Running")
        self._plans.end(session, plan, state, refused.reason, message)

    def cancelled(self, session: Session, row: OperationRow, target: Any) -> None:
        if isinstance(target, DefragmentationRow) and target.state == "Running":
            target.cancelling = True

    def on_abandoned(self, session: Session, row: OperationRow, target: Any, reason: MatrixError, now: float) -> None:
        if isinstance(target, DefragmentationRow) and target.state in IN_PROGRESS:
            self._plans.end(session, target, "Cancelled", reason.reason, reason.message)
