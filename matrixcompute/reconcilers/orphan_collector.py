"""Frees what no instance owns: allocations and slices that bear an instance's name and outlived it.

A thing is let go only when it was ownerless on two looks in a row, so that one that is just being made is left alone.
"""

from __future__ import annotations

from matrixcommon.model.resource_key import sibling
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.composition import OWNER_LABEL
from matrixcompute.store.store import ComputeStore


class OrphanCollector:
    """`look` once per period."""

    def __init__(self, store: ComputeStore, neighbours: ControlPlane) -> None:
        self._store = store
        self._neighbours = neighbours
        self._suspects: set[tuple[str, str]] = set()

    async def reconcile(self) -> str:
        """Release what was ownerless last time too. Returns a sentence about what it did."""
        found: set[tuple[str, str]] = set()
        slices, allocations = await self._neighbours.slices(), await self._neighbours.allocations()
        with self._store.reading() as session:
            owners = {row.name for row in self._store.instances(session)}
        for instance in slices.keys() - owners:
            found |= {("slice", sibling(instance, each.name)) for each in slices[instance]}
        for allocation in allocations:
            owner = allocation.labels.get(OWNER_LABEL)
            if owner is not None and owner not in owners:
                found.add(("allocation", allocation.key))
        for kind, name in sorted(found & self._suspects):
            await (self._neighbours.withdraw(name) if kind == "slice" else self._neighbours.release(name))
        released = len(found & self._suspects)
        self._suspects = found
        return f"{released} orphans released"
