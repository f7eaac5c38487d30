"""Instances that have too few members for want of nodes: each look asks MatrixResource whether there is room by now.

One in its degraded shape has the missing members back, one that is below its floor is repaired. Asking changes nothing,
so that no workflow is opened, refused and shown for every look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.retries import RETRY_S, Refusals
from matrixcompute.operations.context import RESTORE
from matrixcompute.operations.starter import WorkflowStarter, below_floor
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import Recovery
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixcompute.workflows.restoring_steps import room_for, take_spares
from matrixresource.contract.allocations import AllocationView


class RoomReconciler:
    """`restore`, `repair` and `start` for one instance each, which no workflow carries."""

    def __init__(self, store: ComputeStore, neighbours: ControlPlane, workflows: WorkflowStarter, clock: Clock) -> None:
        self._store = store
        self._neighbours = neighbours
        self._workflows = workflows
        self._clock = clock
        self._refusals = Refusals(clock)

    def due(self, name: str) -> bool:
        """Whether to ask for members that an instance goes without."""
        return not self._refusals.rests(name)

    async def restore(self, name: str) -> int:
        """Have members back that it goes without, as many as there is room for; then spares. How many workflows were
        opened."""
        self._refusals.note(name)
        allocation = await self._neighbours.find_allocation(name)
        with self._store.reading() as session:
            instance = session.get(InstanceRow, name)
            shape, lacks = (None, 0) if instance is None else (instance.last_active, instance.lacks(allocation))
        if allocation is None or shape is None:
            return 0
        if not lacks:
            await take_spares(self._neighbours, name, shape)
            return 0
        nodes = await room_for(self._neighbours, name, shape, allocation, allocation.nodes + lacks)
        if nodes == allocation.nodes:
            return 0
        members = sorted(each.node for each in allocation.members if each.role == "member")
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Active" or self._store.open_operations(session, name):
                return 0
            about = {"nodes": str(nodes), "spares": str(allocation.spares), "members": " ".join(members)}
            self._workflows.open(session, RESTORE, instance, "Updating", "Restoring", about)
        return 1

    async def repair(
        self, name: str, allocation: AllocationView, recovery: Recovery, tried: Sequence[RungTried], stops: bool
    ) -> int:
        """Repair one that is below its floor, where that could help by now. How many workflows were opened."""
        helps = await self._helps(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or not below_floor(instance) or self._store.open_operations(session, name):
                return 0
            if not helps:
                instance.retry_at = math.inf if stops else self._clock.now() + RETRY_S
                return 0
            self._workflows.open_repair(session, instance, allocation.members, recovery, tried)
        return 1

    async def start(self, name: str, allocation: AllocationView, recovery: Recovery) -> int:
        """Start one that has lost members while it was switched off, where enough work or there are nodes for others:
        tried all the same, its nodes would be switched on and off. How many workflows were opened."""
        helps = await self._helps(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Stopped" or self._store.open_operations(session, name):
                return 0
            if not helps:
                instance.retry_at = self._clock.now() + RETRY_S
                return 0
            self._workflows.open_change(session, instance)
        return 1

    async def _helps(self, name: str, allocation: AllocationView, recovery: Recovery) -> bool:
        """Whether enough members work, or there is a node for any that does not."""
        with self._store.reading() as session:
            floor = self._store.instance(session, name).shape.floor
        members = [each.node for each in allocation.members if each.role == "member"]
        if len(members) - len({*members} & {*recovery.nodes}) >= floor:
            return True
        for node in recovery.nodes:
            try:
                await self._neighbours.replace(name, node, recovery.reason, validate_only=True)
            except Conflict:
                continue
            return True
        return False
