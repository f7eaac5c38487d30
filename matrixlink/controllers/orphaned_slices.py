"""Withdraws slices whose allocation is gone, since their nodes may belong to someone else by now.

MatrixCompute withdraws the slices of its instances before it releases their nodes. Those left over here were requested
manually, or come from restoring databases of different moments.
"""

from __future__ import annotations

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import NotFound, Unavailable
from matrixlink.model.slice_states import WITHDRAWING
from matrixlink.ports import Allocations
from matrixlink.slices.slice_controller import SliceController


class OrphanedSlices:
    """`reconcile` runs once per period. A slice is withdrawn only if its allocation is missing in two checks in a
    row."""

    def __init__(self, slice_controller: SliceController, allocations: Allocations, clock: Clock) -> None:
        self._slice_controller = slice_controller
        self._allocations = allocations
        self._clock = clock
        self._suspects: dict[str, str] = {}

    async def reconcile(self) -> str:
        """Withdraw slices that had no allocation last time either. Return a sentence about it."""
        store = self._slice_controller.store
        with store.reading() as session:
            owners = {row.name: row.allocation for row in store.slices(session) if row.state != WITHDRAWING}
        if not owners:
            self._suspects = {}
            return "no slices"
        try:
            present = await self._allocations.present()
        except Unavailable:
            return "MatrixResource does not answer"
        missing = {name: allocation for name, allocation in owners.items() if allocation not in present}
        gone = sorted(name for name, allocation in missing.items() if self._suspects.get(name) == allocation)
        for name in gone:
            self._withdraw(name, missing[name])
        self._suspects = missing
        return f"{len(gone)} slices withdrawn whose allocation is gone"

    def _withdraw(self, name: str, allocation: str) -> None:
        store = self._slice_controller.store
        with store.transaction() as session:
            try:
                row = store.slice(session, name)
            except NotFound:
                return
            if row.allocation != allocation or row.state == WITHDRAWING:
                return
            text = f"its allocation {allocation} is gone: it is withdrawn, and its floors are released"
            store.record_event(
                session, name, "OrphanReleased", text, self._clock.now(), warning=True, project=row.project
            )
        self._slice_controller.withdraw(name)
