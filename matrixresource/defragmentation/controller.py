"""DefragmentationController: one check of a plan in progress: what has been done, what is next, and whether it is still
valid.

Progress is derived from where allocations are placed, so a check can be repeated at any time. It starts the next move;
moves that MatrixCompute does not perform are run here as a workflow. If something got in the way, the rest is planned
again within the approved NPUs, or the plan becomes stale.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Cancelled, StalePlan, from_problem
from matrixcommon.workflows.rows import OPEN
from matrixcommon.workflows.workflow import StepPending
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.defragmentations import MoveView
from matrixresource.defragmentation.plan import blocking_reason, has_moved, move_started, plan_room, split_allocations
from matrixresource.defragmentation.plan_lifecycle import PlanLifecycle
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.defragmentations import IN_PROGRESS, DefragmentationRow
from matrixresource.store.operations import OperationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import current_version

MOVE_ATTEMPTS_MAX = 5
"""The attempts at one move before the plan fails."""

RECONCILE_INTERVAL_S = 5.0
"""How often placements are checked when no event triggers it earlier."""

OpenMove = Callable[[Session, AllocationRow, dict[str, str]], object]


class DefragmentationController:
    """Over one store and its ledger. `open_move` opens the workflow of a move in the caller's transaction,
    `wake_runner` starts it."""

    def __init__(
        self,
        store: ResourceStore,
        allocator: Allocator,
        clock: Clock,
        open_move: OpenMove,
        wake_runner: Callable[[], None],
    ) -> None:
        self._store = store
        self._ledger = allocator.ledger
        self._plans = PlanLifecycle(store, clock)
        self._clock = clock
        self._open_move = open_move
        self._wake_runner = wake_runner

    def reconcile(self, name: str, stopping: bool = False) -> StepPending | None:
        """Return what the plan waits for; None once the room is there. With `stopping`, start nothing more, except to
        keep allocations from being left in two places; return None once no move is in progress. Raises StalePlan if the
        plan is no longer valid and there is no other, and the error of a move that was refused for good."""
        with self._store.transaction() as session:
            self._store.records.lock(session)  # one replica at a time
            waiting = self._reconcile(session, name, stopping)
        if waiting is not None and waiting.on:
            self._wake_runner()
        return waiting

    def _reconcile(self, session: Session, name: str, stopping: bool) -> StepPending | None:
        row = session.get(DefragmentationRow, name)
        if row is None or row.state not in IN_PROGRESS:
            return None
        nodes = self._plans.nodes(session, row)
        steps = row.steps()
        for each in steps:
            if each.open and has_moved(each, nodes):
                each.state = "Moved"
        row.set_steps(sorted(steps, key=lambda step: step.open))
        step = row.current_step()
        if step is not None and move_started(step, nodes):
            self._ensure_moving(session, row, step, force=stopping)
            message = f"{step.allocation} is being deployed on {step.to}; {step.source} serves meanwhile"
            return self._pending(row, message, step)
        nodes_with_parts = self._store.nodes_with_parts(session)
        why = blocking_reason(row, nodes, nodes_with_parts)
        if stopping and (why is not None or not row.cancelling or not split_allocations(session, self._ledger, row)):
            return None
        if why is not None:
            self._replan(session, row, why)
            return StepPending(row.message, again_s=0)
        if step is not None:
            return self._start_move(session, row, step, nodes[step.to].obstacle_to_npus(step.to in nodes_with_parts))
        unclean = [
            name for name in row.room if nodes[name].obstacle_to_npus(name in nodes_with_parts) not in (None, "Kept")
        ]
        return self._pending(row, f"{', '.join(unclean)} are being cleaned") if unclean else None

    def _pending(self, row: DefragmentationRow, message: str, step: MoveView | None = None) -> StepPending:
        self._plans.set_message(row, message)
        return StepPending(message, on=() if step is None else {step.allocation}, again_s=RECONCILE_INTERVAL_S)

    def _start_move(
        self, session: Session, row: DefragmentationRow, step: MoveView, obstacle: str | None
    ) -> StepPending:
        allocation = self._store.allocation(session, step.allocation)
        if obstacle not in (None, "Kept"):
            return self._pending(row, f"{step.allocation} waits for {step.to}, which is {obstacle}")
        if allocation.state not in ("Reserved", "Binding", "Bound"):
            return self._pending(row, f"{step.allocation} is {allocation.state} and moves after that")
        row.move("Running")
        steps = row.steps()
        for each in steps:
            if (each.allocation, each.source, each.to) == (step.allocation, step.source, step.to):
                each.state = "Moving"
        row.set_steps(steps)
        self._ensure_moving(session, row, step)
        return self._pending(row, f"{step.allocation} moves from {step.source} to {step.to} next, by {step.by}", step)

    def _ensure_moving(self, session: Session, row: DefragmentationRow, step: MoveView, force: bool = False) -> None:
        """Make sure that somebody performs this move: its owner, or a workflow. Raises the error of the last attempt if
        that was cancelled or there have been enough attempts, unless `force`."""
        if step.by != "MatrixResource":
            return
        parameters = {"defragmentation": row.name, "node": str(step.source), "to": str(step.to)}
        query = select(OperationRow).where(OperationRow.target == step.allocation).order_by(OperationRow.version)
        since = row.created_at  # a deleted plan of this name may have made the same move
        attempts = [
            each for each in session.scalars(query) if each.parameters == parameters and each.created_at >= since
        ]
        errors = [from_problem(each.error, 500) for each in attempts if each.error and each.state not in OPEN]
        if any(each.state in OPEN for each in attempts):
            return
        if errors and not force and (isinstance(errors[-1], Cancelled) or len(errors) >= MOVE_ATTEMPTS_MAX):
            raise errors[-1]
        self._open_move(session, self._store.allocation(session, step.allocation), parameters)

    def _replan(self, session: Session, row: DefragmentationRow, why: str) -> None:
        """Plan the rest again within what was approved."""
        self._ledger.open(session)
        request = self._ledger.placement_request(row.spec(), self._clock.now())
        found = plan_room(session, self._store, self._ledger, request)
        moved = [step for step in row.steps() if not step.open]
        moved_npus = sum(step.npus for step in moved)
        if found is None:
            raise StalePlan(f"{why}, and no other plan was found")
        remaining_npus = sum(step.npus for step in found.moves)
        if (total := moved_npus + remaining_npus) > row.npus:
            raise StalePlan(f"{why}; another plan would move {total:g} NPUs in all, but {row.npus:g} were approved")
        row.set_steps([*moved, *found.moves])
        row.room = [*found.nodes]
        row.topology_version = current_version(session)
        self._plans.sync_reserved_nodes(session, row)
        self._plans.record_progress(
            row, True, "PlannedAnew", f"{why}: planned again, with {remaining_npus:g} NPUs left to move"
        )
