"""Carries defragmentations on, one move after the other.

How far a plan is, is read off who lies where, so this may end at any point and be run again. A look marks the move
that is next; what MatrixCompute does not move is moved here. Where something got in the way, the rest is planned anew
within the NPUs that were approved, or the plan is over.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import find
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.defragmentations import MoveView, RelocateRequest
from matrixresource.defragmentation.plan import blocking_reason, has_moved, move_started, plan_room, split_allocations
from matrixresource.defragmentation.plan_lifecycle import PlanLifecycle
from matrixresource.store.defragmentations import UNDER_WAY, DefragmentationRow, in_state
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import current_version


class DefragmentationController:
    """`carry_on` on a period and when nudged."""

    def __init__(self, store: ResourceStore, allocator: Allocator, clock: Clock) -> None:
        self._store = store
        self._allocator = allocator
        self._ledger = allocator.ledger
        self._clock = clock
        self._plans = PlanLifecycle(store, clock)

    def reconcile(self) -> str:
        """One look at every plan that is not over, and the actions that are ours."""
        with self._store.reading() as session:
            running = [row.name for row in in_state(session, *UNDER_WAY)]
            proposed = in_state(session, "Proposed")
        if proposed:
            self._end_outdated()
        actions = sum(map(self._carry_on, running))
        return f"{actions} steps of {len(running)} defragmentations"

    def _end_outdated(self) -> None:
        """Plans for review that would be other plans by now."""
        with self._store.transaction() as session:
            for row in in_state(session, "Proposed"):
                if (why := self._plans.outdated(session, row)) is not None:
                    self._plans.end(session, row, "Stale", "StalePlan", why)

    def _carry_on(self, name: str) -> int:
        """The actions that are ours and next, as far as they succeed; how many."""
        actions = 0
        while (action := self._looked_at(name)) is not None and self._did(name, *action):
            actions += 1
        return actions

    def _looked_at(self, name: str) -> tuple[str, MoveView] | None:
        """Write down what has come true and what is next; a action where that is ours to do."""
        with self._store.transaction() as session:
            self._store.records.lock(session)  # one replica looks at a time
            row = find(session, DefragmentationRow, name)
            if row.state not in UNDER_WAY:
                return None
            nodes = self._plans.nodes(session, row)
            steps = row.steps()
            for each in steps:
                if each.open and has_moved(each, nodes):
                    each.state = "Moved"
            row.write(sorted(steps, key=lambda step: step.open))
            step = row.step()
            if step is not None and move_started(step, nodes):
                return self._under_way(row, step, nodes[step.to])
            if row.cancelling and not split_allocations(session, self._ledger, row):
                moved = sum(not step.open for step in steps)
                self._plans.end(session, row, "Cancelled", "Cancelled", f"stopped after {moved} of {len(steps)} moves")
                return None
            if (why := blocking_reason(row, nodes)) is not None:
                self._plan_anew(session, row, why)
                return None
            if step is None:
                self._wait_for_room(session, row, nodes)
                return None
            return self._next(session, row, step, nodes)

    def _under_way(self, row: DefragmentationRow, step: MoveView, successor: NodeRow) -> tuple[str, MoveView] | None:
        self._plans.note(row, f"{step.allocation} is coming up on {step.to}; it is served on {step.source} meanwhile")
        if step.by != "MatrixResource":
            return None
        if successor.fault() is not None:
            return "stay", step
        return ("change over", step) if successor.ready else None

    def _next(
        self, session: Session, row: DefragmentationRow, step: MoveView, nodes: dict[str, NodeRow]
    ) -> tuple[str, MoveView] | None:
        target = nodes[step.to]
        allocation = self._store.allocation(session, step.allocation)
        if target.obstacle() not in (None, "Kept"):
            self._plans.note(row, f"{step.to} is {target.state}; then {step.allocation} moves there")
            return None
        if allocation.state not in ("Reserved", "Binding", "Bound"):
            self._plans.note(row, f"{step.allocation} is {allocation.state}; it moves once that is over")
            return None
        row.move("Running")
        steps = row.steps()
        for each in steps:
            if (each.allocation, each.source, each.to) == (step.allocation, step.source, step.to):
                each.state = "Moving"
        row.write(steps)
        self._plans.note(row, f"{step.allocation} moves from {step.source} to {step.to} next, by {step.by}")
        return ("relocate", step) if step.by == "MatrixResource" else None

    def _did(self, name: str, action: str, step: MoveView) -> bool:
        """Each action is a verb of its own and may be asked for again."""
        try:
            if action == "relocate":
                request = RelocateRequest(node=NodeName(step.source), to=NodeName(step.to), defragmentation=name)
                self._allocator.relocate(step.allocation, request)
            elif action == "stay":
                self._allocator.abort_move(step.allocation)
            else:
                with self._store.reading() as session:
                    request_spec = self._store.allocation(session, step.allocation).spec()
                self._allocator.cut_over(step.allocation, request_spec)
        except MatrixError as refused:
            with self._store.transaction() as session:
                self._plans.note(find(session, DefragmentationRow, name), f"{refused.reason}: {refused.message}")
            return False
        return True

    def _wait_for_room(self, session: Session, row: DefragmentationRow, nodes: dict[str, NodeRow]) -> None:
        dirty = [name for name in row.room if nodes[name].obstacle() not in (None, "Kept")]
        if dirty:
            self._plans.note(row, f"{', '.join(dirty)} are being cleaned")
        else:
            self._plans.end(session, row, "Done", "RoomMade", f"{len(row.room)} nodes are free: {', '.join(row.room)}")

    def _plan_anew(self, session: Session, row: DefragmentationRow, why: str) -> None:
        """The rest planned anew within what was approved; else the plan is stale."""
        if row.cancelling:
            self._plans.end(session, row, "Cancelled", "Cancelled", why)
            return
        self._ledger.open(session)
        request = self._ledger.placement_request(row.spec(), self._clock.now())
        found = plan_room(session, self._store, self._ledger, request)
        moved = [step for step in row.steps() if not step.open]
        spent = sum(step.npus for step in moved)
        if found is None:
            self._plans.end(session, row, "Stale", "StalePlan", f"{why}, and no other way was found")
            return
        more = sum(step.npus for step in found.moves)
        if spent + more > row.npus:
            text = (
                f"{why}; with what has moved another way would move {spent + more:g} NPUs, {row.npus:g} were approved"
            )
            self._plans.end(session, row, "Stale", "StalePlan", text)
            return
        row.write([*moved, *found.moves])
        row.room = [*found.nodes]
        row.topology_version = current_version(session)
        self._plans.keep(session, row)
        self._plans.say(row, True, "PlannedAnew", f"{why}: planned anew, {more:g} NPUs are left to move")
