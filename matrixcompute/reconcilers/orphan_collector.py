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
        for instance, slices in (await self._neighbours.slices()).items():
            found |= {("slice", sibling(instance, each.name)) for each in slices if not self._is_active(instance)}
        for allocation in await self._neighbours.allocations():
            owner = allocation.labels.get(OWNER_LABEL)
            if owner is not None and not self._is_active(owner):
                found.add(("allocation", allocation.key))
        for kind, name in sorted(found & self._suspects):
            await (self._neighbours.withdraw(name) if kind == "slice" else self._neighbours.release(name))
        released = len(found & self._suspects)
        self._suspects = found
        return f"{released} orphans released"

    def _is_active(self, instance: str) -> bool:
        with self._store.reading() as session:
            return any(row.name == instance for row in self._store.instances(session))
