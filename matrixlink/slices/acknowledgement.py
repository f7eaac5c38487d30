"""Acknowledgements: derive the state of slices from what their agents acknowledged, and remove those that have ended.

A slice is Active when every member's program is acknowledged in its generation, Failed when an agent failed, and gone
when it is withdrawn and every program is cleared. A node that cannot be reached, or takes too long, leaves a fence: its
isolation key is not reused until its agent has reported the slice gone. Such a node may continue to send, but every
other end has closed that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.planes import Plane
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.model.slice_states import SLICE_STATES, WITHDRAWING, WITHDRAWN, next_state
from matrixlink.ports import AgentReachability
from matrixlink.slices.conditions import set_conditions
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import ProgramRow, SliceRow

CLEAR_TIMEOUT_FLOOR_WALL_S = 10.0
"""However fast emulated time runs, a reachable agent has this long to clear a slice."""


class Acknowledgements:
    """`after` is called once slices were updated, for whatever else waits for acknowledgements."""

    def __init__(self, store: LinkStore, promises: AdmissionState, clock: Clock, reach: AgentReachability) -> None:
        self._store = store
        self._promises = promises
        self._clock = clock
        self._reach = reach
        self.after: list[Callable[[Session], None]] = []

    def reconcile(self, session: Session, slices: Iterable[SliceRow | str]) -> list[str]:
        """Update these slices, given by row or name. Return those that were withdrawn and are gone."""
        gone = []
        for each in sorted(slices, key=lambda each: each if isinstance(each, str) else each.name):
            row = session.get(SliceRow, each) if isinstance(each, str) else each
            if row is not None and self._reconcile(session, row):
                gone.append(row.name)
        for follow in self.after:
            follow(session)
        return gone

    def _reconcile(self, session: Session, row: SliceRow) -> bool:
        """Return True if the slice is gone."""
        programs = self._store.programs(session, row.name) if row.program_generation else []
        programs = self._drop_cleared(session, row, programs)
        if row.state == WITHDRAWING:
            if not programs:
                self._forget(session, row)
            return not programs
        wanted = [program for program in programs if program.action == "program"]
        row.programmed = sum(p.state == "Programmed" and p.generation == row.generation for p in wanted)
        failed = [program for program in wanted if program.state == "Failed"]
        if row.program_generation == row.generation:
            whole = not self._promises.count_avoided_ports(row)[0] and row.kept >= 1
            row.move(next_state(row.state, row.programmed, len(row.members), len(failed), whole))
        self._tell(row, [f"{program.node}: {program.message}" for program in failed])
        return False

    def _drop_cleared(self, session: Session, row: SliceRow, programs: list[ProgramRow]) -> list[ProgramRow]:
        """Remove programs that were cleared, and those on unreachable nodes, which leave a fence behind. Return the
        programs that stay."""
        deadline_s = SLICE_STATES.states[WITHDRAWING].deadline_s or 0.0
        patience_s = self._clock.at_least_wall(deadline_s, CLEAR_TIMEOUT_FLOOR_WALL_S)
        overdue = row.withdrawing_since is not None and self._clock.now() - row.withdrawing_since > patience_s
        stay = []
        for program in programs:
            cleared = program.action == "clear" and program.state == "Cleared"
            if program.action != "clear" or (not cleared and self._reach.reachable(program.node) and not overdue):
                stay.append(program)
                continue
            if not cleared:
                self._promises.fenced = True
                self._store.fence(session, row, program)
            session.delete(program)
        return stay

    def _forget(self, session: Session, row: SliceRow) -> None:
        row.move(WITHDRAWN)
        plane, members = Plane(row.plane), list(row.members)
        self._promises.release(row.name)
        if row.program_generation:  # otherwise no agent has ever heard of it
            self._store.remember_generation(session, row)
        session.delete(row)
        self._promises.publish_shares(session, plane, [*members, *self.restore_floors(session, plane)])

    def restore_floors(self, session: Session, plane: Plane, but: str = "") -> list[str]:
        """Give floors that have less than promised what is free now, except that of slice `but`. Return the members
        whose shares may have changed by that."""
        lacking = [name for name in self._promises.degraded_slices(plane) if name != but]
        rows = self._store.slices_named(session, lacking)
        if rows:
            self._promises.reallocate(rows)
        for row in rows:
            self._reconcile(session, row)
        return [member for row in rows for member in row.members]

    def _tell(self, row: SliceRow, failures: list[str]) -> None:
        set_conditions(row, failures, self._promises.count_avoided_ports(row), self._clock.now())
