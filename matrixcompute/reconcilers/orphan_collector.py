"""Frees what instances left behind: allocations and slices that were made for one and outlived it. What somebody made
by hand is that one's, whatever instance it names.

A thing is let go only when it was ownerless on two looks in a row, so that one that is just being made is left alone.
"""

from __future__ import annotations

from matrixcommon.model.clock import Clock
from matrixcommon.model.resource_key import name_of
from matrixcompute.clients.control_plane import ControlPlane, Made
from matrixcompute.store.store import ComputeStore


class OrphanCollector:
    """`look` once per period."""

    def __init__(self, store: ComputeStore, neighbours: ControlPlane, clock: Clock) -> None:
        self._store = store
        self._neighbours = neighbours
        self._clock = clock
        self._suspects: set[Made] = set()

    async def reconcile(self) -> str:
        """Release what was ownerless last time too. Returns a sentence about what it did."""
        made = await self._neighbours.made_for_instances()
        with self._store.reading() as session:
            instances = {row.name for row in self._store.instances(session)}
        found = {thing for thing, instance in made.items() if instance not in instances}
        orphans = sorted(found & self._suspects)
        for kind, name in orphans:
            with self._store.transaction() as session:
                message = f"{kind} {name_of(name)}, which the instance left behind, is released"
                self._store.record_event(session, made[kind, name], "OrphanReleased", message, self._clock.now())
            await (self._neighbours.withdraw(name) if kind == "slice" else self._neighbours.release(name))
        self._suspects = found
        return f"{len(orphans)} orphans released"
